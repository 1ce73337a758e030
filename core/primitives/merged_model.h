/* Writes a model with its adapter merged into the weights. */
#ifndef LATHE_PRIMITIVES_MERGED_MODEL_H
#define LATHE_PRIMITIVES_MERGED_MODEL_H

#include "checkpoint/saved_state.h"

/** Writes config.json, the weights and the tokenizer's files into the new folder `path`: the model
 *  in saved->model_path, with the contribution of the adapter, whose parameters are in memory,
 * added to the weight of each site. Reads the model's weights from its files, so that a base that
 * is quantized in memory is merged in the precision of the files. Every tensor keeps its dtype,
 * unless checkpoint.save_dtype names another; those without an adapter are copied byte for byte.
 * Weights that the folder stores quantized are decoded, and get the dtype of config.json.
 * manifest.json names both folders with their hashes. The folder appears under its name when it is
 * complete.
 *
 *   adapter the folder that the parameters of the adapter were read from
 *   out_n   number of weights that were changed
 *
 *   Errors  LATHE_E_CONFIG: the path exists, the adapter has no merge(), or it holds a head of a
 *           stage. LATHE_E_NUMERIC: a merged weight is not finite.
 */
lathe_status lathe__merged_model_write(const lathe_saved_state *saved, const char *adapter,
                                       const char *path, int32_t *out_n);

#endif

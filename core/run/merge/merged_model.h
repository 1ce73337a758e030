/* Writes a model with adapters merged into its weights. */
#ifndef LATHE_RUN_MERGED_MODEL_H
#define LATHE_RUN_MERGED_MODEL_H

#include "base/work_watch.h"
#include "run/merge/merge_part.h"

/** Writes config.json, the weights and the tokenizer's files into the new folder `path`: the model
 *  in parts[0].saved->model_path, which all adapters have as their base, with what they change:
 *  W + the sum of weight_k (W_k - W), where W_k is the weight with adapter k. For LoRA that is the
 *  sum of weight_k s_k B_k A_k ("cat" in PEFT). Reads the model's weights from its files, so that a
 *  base that is quantized in memory is merged in the precision of the files. Every tensor keeps its
 *  dtype, unless checkpoint.save_dtype names another; those without an adapter are copied byte for
 *  byte. Weights that the folder stores quantized are decoded, and get the dtype of config.json.
 *  manifest.json names the folders with their hashes. The folder appears under its name when it is
 *  complete. n_parts: 1 to LATHE_MOST_MERGED. combine LATHE_COMBINE_LINEAR: W + (sum of b_k B_k)
 * (sum of a_k A_k) instead (merge_linear.h).
 *
 *   watch   of the weights that are changed; NULL: nobody
 *   out_n   number of weights that were changed
 *
 *   Errors  LATHE_E_CONFIG: the path exists, an adapter has no merge(), or it holds a head of a
 *           stage. LATHE_E_NUMERIC: a merged weight is not finite. That of `watch`.
 */
lathe_status lathe__merged_model_write(const lathe_merge_part *parts, int32_t n_parts,
                                       int32_t combine, const char *path,
                                       const lathe_work_watch *watch, int32_t *out_n);

#endif

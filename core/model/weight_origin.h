/* Where a model's weights came from: file, place and dtype of each tensor.
 *
 * Weights that do not train are held rounded to the compute dtype, or quantized. A saved model gets
 * them from here, byte for byte as they were read. The files stay open, so that removing or
 * replacing them does not matter.
 */
#ifndef LATHE_MODEL_WEIGHT_ORIGIN_H
#define LATHE_MODEL_WEIGHT_ORIGIN_H

#include "io/safetensors.h"
#include "ir/params.h"
#include "model/hf_config.h"

typedef struct lathe_weight_origin lathe_weight_origin;

/** Remembers the tensors of `set` that are rows of `params` and do not train. The set may be closed
 *  afterwards.
 *
 *  earlier  NULL, or an origin whose tensors are preferred where they give those of the set when
 *           they are rounded to their dtype: of a checkpoint in bf16, the f32 tensors of the model
 *           that it was made from
 *
 *  Errors  LATHE_E_IO: a file cannot be opened. LATHE_E_NOMEM.
 */
lathe_status lathe_weight_origin_create(const lathe_safetensors *set,
                                        const lathe_model_config *config,
                                        const lathe_params *params,
                                        const lathe_weight_origin *earlier,
                                        lathe_weight_origin **out);

/** Closes the files; takes NULL. */
void lathe_weight_origin_destroy(lathe_weight_origin *origin);

/** dtype of the tensor of row `param`; -1: there is none. NULL origins have none. */
int32_t lathe_weight_origin_dtype(const lathe_weight_origin *origin, int32_t param);

/** Bytes [offset, offset + bytes) of the tensor, in the layout of files. Any thread.
 *  LATHE_E_IO names the file. */
lathe_status lathe_weight_origin_read(const lathe_weight_origin *origin, int32_t param,
                                      int64_t offset, void *to, int64_t bytes);

/** LATHE_E_CORRUPT: a file was written to since it was opened; names it. */
lathe_status lathe_weight_origin_check(const lathe_weight_origin *origin);

#endif

/* Records where a model's weights were read from: file, place and dtype of each tensor.
 *
 * The run holds weights that are not trained rounded to the compute dtype, or quantized. A saved
 * model gets them from the file instead, byte for byte. The files stay open, so that they may be
 * removed or replaced meanwhile.
 */
#ifndef LATHE_MODEL_WEIGHT_ORIGIN_H
#define LATHE_MODEL_WEIGHT_ORIGIN_H

#include "files/safetensors/safetensors.h"
#include "graph/ir/params.h"
#include "model/family/hf_config.h"

typedef struct lathe_weight_origin lathe_weight_origin;

/** Records the tensors of `set` that are rows of `params` and are not trained, and those of the
 *  other towers of a wrapper, which are carried. The set may be closed afterwards.
 *
 *   earlier  NULL, or an origin whose tensors are preferred if, rounded to the dtypes of the
 *            set, they equal the set's: for a checkpoint in bf16, the f32 tensors of the model
 *            that it was made from
 *
 *   Errors  LATHE_E_IO: a file cannot be opened. LATHE_E_NOMEM.
 */
lathe_status lathe_weight_origin_create(const lathe_safetensors *set,
                                        const lathe_model_config *config,
                                        const lathe_params *params,
                                        const lathe_weight_origin *earlier,
                                        lathe_weight_origin **out);

/** Closes the files. NULL is allowed. */
void lathe_weight_origin_destroy(lathe_weight_origin *origin);

/** dtype of the tensor of row `param`; -1 if it has none, or origin is NULL. */
int32_t lathe_weight_origin_dtype(const lathe_weight_origin *origin, int32_t param);

/** Bytes [offset, offset + bytes) of the tensor, in the layout of files. Any thread.
 *  LATHE_E_IO names the file. */
lathe_status lathe_weight_origin_read(const lathe_weight_origin *origin, int32_t param,
                                      int64_t offset, void *to, int64_t bytes);

/** Number of carried tensors; 0 for NULL. */
int64_t lathe_weight_origin_n_carried(const lathe_weight_origin *origin);

/** Carried tensor i as its file has it; `data` is NULL. */
const lathe_st_tensor *lathe_weight_origin_carried(const lathe_weight_origin *origin, int64_t i);

/** Bytes [offset, offset + bytes) of carried tensor i. Any thread. LATHE_E_IO names the file. */
lathe_status lathe_weight_origin_read_carried(const lathe_weight_origin *origin, int64_t i,
                                              int64_t offset, void *to, int64_t bytes);

/** LATHE_E_UNSUPPORTED: a carried tensor holds encoded weights, which need the quantization_config
 *  that is not saved with weights that were decoded. */
lathe_status lathe_weight_origin_check_plain(const lathe_weight_origin *origin);

/** LATHE_E_CORRUPT: a file has been written to since it was opened; the message names it. */
lathe_status lathe_weight_origin_check(const lathe_weight_origin *origin);

#endif

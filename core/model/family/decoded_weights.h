/* The weights of a quantized folder as numbers. */
#ifndef LATHE_MODEL_DECODED_WEIGHTS_H
#define LATHE_MODEL_DECODED_WEIGHTS_H

#include "files/safetensors/safetensors.h"
#include "graph/ir/params.h"
#include "model/family/hf_config.h"

/** Makes a set with a tensor for every row of the model that the folder has: plain ones as they
 * are, and F32 for those whose planes are in the folder (lathe_param.planes_on_file, stored). The
 * latter are decoded when they are read, one weight at a time; the last one is kept. Tensors
 * without a row are left out. The table and its formats must outlive the set; `set` is held.
 *
 *   Errors  of reading: those of lathe_weight_planes_read, and LATHE_E_NOMEM */
lathe_status lathe_decoded_weights_open(const lathe_safetensors *set,
                                        const lathe_model_config *config,
                                        const lathe_params *params, lathe_safetensors **out);

#endif

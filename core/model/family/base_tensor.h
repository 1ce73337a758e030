/* The base's own embedding and head in the file of an adapter: PEFT saves them beside an adapter of
 * the embedding, and reads them into the base. */
#ifndef LATHE_MODEL_BASE_TENSOR_H
#define LATHE_MODEL_BASE_TENSOR_H

#include "files/safetensors/safetensors.h"
#include "graph/ir/params.h"
#include "model/family/hf_config.h"

/** Whether the tensor of an adapter's file is the weight of the base's embedding or head
 *  ("base_model.model.model.embed_tokens.base_layer.weight"). model_path NULL: nothing is compared.
 *  LATHE_E_CONFIG: it is one, and differs from the model's. */
lathe_status lathe_base_tensor_check(const lathe_model_config *model, const lathe_params *params,
                                     const char *model_path, const lathe_st_tensor *t,
                                     int *out_is_base);

#endif

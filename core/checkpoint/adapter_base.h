/* The base's own embedding and head in the file of an adapter: PEFT saves them beside an adapter of
 * the embedding, and reads them into the base. */
#ifndef LATHE_CHECKPOINT_ADAPTER_BASE_H
#define LATHE_CHECKPOINT_ADAPTER_BASE_H

#include "checkpoint/saved_state.h"
#include "io/safetensors.h"

/** Whether the tensor of an adapter's file is the weight of the base's embedding or head
 *  ("base_model.model.model.embed_tokens.base_layer.weight"). LATHE_E_CONFIG: it is one, and differs
 *  from the model's. */
lathe_status lathe__adapter_base_check(const lathe_saved_state *saved, const lathe_st_tensor *t,
                                       int *out_is_base);

#endif

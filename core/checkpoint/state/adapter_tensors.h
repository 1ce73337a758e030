/* The tensors of an adapter's file, under the names that PEFT gives them. */
#ifndef LATHE_CHECKPOINT_ADAPTER_TENSORS_H
#define LATHE_CHECKPOINT_ADAPTER_TENSORS_H

#include "files/safetensors/safetensors.h"

typedef struct lathe_adapter_tensors lathe_adapter_tensors;

/** Opens adapter_model.safetensors of a folder, or its index. Other programs save the same tensors
 *  under other names: with the adapter's name in them ("lora_A.default.weight"), without
 *  "base_model.model." or with it twice, or with the parts that torch.compile and FSDP insert.
 *
 *  Errors  LATHE_E_CONFIG: two tensors have one name of PEFT, so the file has several adapters. As
 *          lathe_safetensors_open. */
lathe_status lathe_adapter_tensors_open(const char *dir, lathe_adapter_tensors **out);

/** NULL is fine. */
void lathe_adapter_tensors_close(lathe_adapter_tensors *tensors);

/** Finds a tensor by its own name or by that of PEFT, and remembers that it was taken. NULL: there
 *  is none. */
const lathe_st_tensor *lathe_adapter_tensors_take(lathe_adapter_tensors *tensors, const char *key);

/** PEFT's name of tensor i; NULL from the number of tensors on. */
const char *lathe_adapter_tensors_key(const lathe_adapter_tensors *tensors, int64_t i);

/** Adds a tensor that another one of the file stands for, under PEFT's name. Takes `data`, f32 from
 *  malloc; `file` is for messages. */
lathe_status lathe_adapter_tensors_add(lathe_adapter_tensors *tensors, const char *key,
                                       const char *file, const lathe_desc *desc, float *data);

/** The next tensor from number *io_from on that was not taken, and the number after it. NULL: all
 *  were taken. */
const lathe_st_tensor *lathe_adapter_tensors_left(const lathe_adapter_tensors *tensors,
                                                  int64_t *io_from);

/** Call it after the last read of tensors: as lathe_safetensors_check. */
lathe_status lathe_adapter_tensors_check(const lathe_adapter_tensors *tensors);

#endif

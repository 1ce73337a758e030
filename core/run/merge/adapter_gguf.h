/* Writes a LoRA adapter as a GGUF file, as llama.cpp's convert_lora_to_gguf.py does. */
#ifndef LATHE_RUN_ADAPTER_GGUF_H
#define LATHE_RUN_ADAPTER_GGUF_H

#include "base/work_watch.h"
#include "files/gguf/gguf_type.h"
#include "run/merge/merge_part.h"

/** Writes general.type = "adapter", adapter.type = "lora", adapter.lora.alpha, and for each weight
 * X that the adapter changes the tensors X.lora_a [r, in] and X.lora_b [out, r] of a type F32, F16
 * or BF16; of the token embedding lora_a is [V, r]. llama.cpp scales each product by alpha / r;
 * where the adapter's own factor is another one (use_rslora, alpha_pattern), B is multiplied by the
 *  quotient. part->weight is not used. watch (NULL: nobody): weights that the adapter changes.
 *
 *   Errors  LATHE_E_CONFIG: the path exists, alpha is 0, the family has no form in GGUF, or the
 *           adapter has more than A and B: magnitudes, biases, whole modules, one pair for both.
 *   Source  llama.cpp, convert_lora_to_gguf.py, and llama-adapter.cpp for the factor. */
lathe_status lathe__adapter_gguf_write(const lathe_merge_part *part, const char *path, int32_t type,
                                       const lathe_work_watch *watch);

#endif

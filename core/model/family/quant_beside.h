/* Settings of quantization that other programs keep in a file of their own beside the weights. */
#ifndef LATHE_MODEL_QUANT_BESIDE_H
#define LATHE_MODEL_QUANT_BESIDE_H

#include <stdint.h>

#include "lathe/status.h"

/** Where config.json has no quantization_config, the folder has quantized tensors and one of
 *  quantize_config.json (AutoGPTQ, GPTQModel), quant_config.json (AutoAWQ) or hf_quant_config.json
 *  (NVIDIA's ModelOpt): makes the text with these settings as quantization_config, which the caller
 *  frees. *out NULL: text[0, bytes) holds as it is. A file beside plain numbers is named in a
 *  warning. */
lathe_status lathe_quant_beside_add(const char *folder, const char *text, int64_t bytes,
                                    char **out);

#endif

/* Settings of quantization that other programs keep in a file of their own beside the weights. */
#ifndef LATHE_MODEL_QUANT_BESIDE_H
#define LATHE_MODEL_QUANT_BESIDE_H

#include <stdint.h>

#include "lathe/status.h"

/** Where config.json has no quantization_config, the folder has quantized tensors and one of
 *  quantize_config.json (AutoGPTQ, GPTQModel), quant_config.json (AutoAWQ) or hf_quant_config.json
 *  (NVIDIA's ModelOpt): replaces the text (malloc'ed) by one with these settings as
 *  quantization_config. A file beside plain numbers is named in a warning. */
lathe_status lathe_quant_beside_add(const char *folder, char **io_text, int64_t *io_bytes);

#endif

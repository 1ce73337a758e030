/* Converts models between Hugging Face folders and GGUF files. */
#ifndef LATHE_CONVERT_GGUF_CONVERT_H
#define LATHE_CONVERT_GGUF_CONVERT_H

#include "gguf/gguf_type.h"
#include "model/hf_config.h"

/** Called between parts of tensors; a status other than LATHE_OK ends the conversion. NULL: none.
 */
typedef lathe_status (*lathe_gguf_check_fn)(void);

/** Writes the model of a folder as a GGUF file of the type F32, F16, BF16, Q8_0, Q4_0, Q4_K or
 *  Q6_K, with its tokenizer and chat template. The file must not exist; it
 *  appears under its name when it is complete. Errors name the tensor, key or tokenizer that cannot
 *  be written. */
lathe_status lathe_gguf_export(const lathe_model_source *source, const char *folder,
                               const char *path, int32_t type, lathe_gguf_check_fn check);

/** Writes the model of a GGUF file as a folder, which must not exist yet, or be empty; it
 *  appears under its name when it is complete. dtype: F32, BF16
 *  or F16 for all tensors; -1: that of the file's matrices (F32 if they are quantized), and F32 for
 *  vectors that it would round. */
lathe_status lathe_gguf_import(const lathe_model_source *source, const char *path,
                               const char *folder, int32_t dtype, lathe_gguf_check_fn check);

#endif

/* Converts models between Hugging Face folders and GGUF files. */
#ifndef LATHE_MODEL_GGUF_CONVERT_H
#define LATHE_MODEL_GGUF_CONVERT_H

#include "base/work_watch.h"
#include "files/gguf/gguf_type.h"
#include "model/family/hf_config.h"

/** Writes the model of a folder as a GGUF file of the type F32, F16, BF16, Q8_0, Q4_0, Q4_K or
 *  Q6_K, with its tokenizer and chat template. The file must not exist; it
 *  appears under its name when it is complete. watch (NULL: nobody): elements of all tensors.
 *  Errors name the tensor, key or tokenizer that cannot be written. */
lathe_status lathe_gguf_export(const lathe_model_source *source, const char *folder,
                               const char *path, int32_t type, const lathe_work_watch *watch);

/** Writes the model of a GGUF file as a folder, which must not exist yet, or be empty; it
 *  appears under its name when it is complete. dtype: F32, BF16
 *  or F16 for all tensors; -1: that of the file's matrices (F32 if they are quantized), and F32 for
 *  vectors that it would round. watch: as above. */
lathe_status lathe_gguf_import(const lathe_model_source *source, const char *path,
                               const char *folder, int32_t dtype, const lathe_work_watch *watch);

#endif

/* A GGUF file as the Hugging Face folder of the same model: its text files and its tensors. */
#ifndef LATHE_FILES_GGUF_FOLDER_H
#define LATHE_FILES_GGUF_FOLDER_H

#include "base/buffer.h"
#include "files/gguf/gguf_family.h"
#include "files/gguf/gguf_file.h"
#include "files/safetensors/safetensors.h"

/** The names of the text files that a folder can have: config.json, tokenizer.json,
 *  tokenizer_config.json, chat_template.jinja, generation_config.json; ends with NULL. */
extern const char *const lathe_gguf_folder_files[];

/** 1: the folder of the file has a text file of that name. */
int32_t lathe_gguf_folder_has(const lathe_gguf *file, const char *name);

/** Appends the content of a text file. LATHE_E_NOT_FOUND: the folder does not have it. Other errors
 *  name the key that is missing or cannot be converted. */
lathe_status lathe_gguf_folder_text(const lathe_gguf *file, const char *name, lathe_buffer *out);

/** Folder and end of the names of the chat templates beside chat_template.jinja. */
#define LATHE_TEMPLATES_FOLDER "additional_chat_templates"
#define LATHE_TEMPLATES_END ".jinja"

/** Names ("tool_use") of these templates, in the arena. Names that are no names of files, with
 *  other characters than letters, digits, _ and -, are left out. */
lathe_status lathe_gguf_templates(const lathe_gguf *file, lathe_arena *arena, char ***out,
                                  int64_t *out_n);

/** The family of the file's model. LATHE_E_UNSUPPORTED: it is not converted. LATHE_E_CONFIG: the
 *  file holds no model, but an adapter, say. */
lathe_status lathe_gguf_family_read(const lathe_gguf *file, const lathe_gguf_family **out);

/** dtype of the folder's matrices: BF16 or F16 if all of the file's have it, else F32. */
int32_t lathe_gguf_dtype(const lathe_gguf *file);

/** The tensors by their names in the folder, decoded when they are read: rows of q and k in the
 *  folder's order, norms without the 1 that GGUF adds. dtypes are those of the folder: the one of
 * the matrices, and F32 for a vector that it would round. Takes the file: it is closed with the
 * set, or on failure.
 *
 *   Errors  LATHE_E_UNSUPPORTED: the family is not converted, or has no such tensor; both are
 * named. */
lathe_status lathe_gguf_tensors(lathe_gguf *file, lathe_safetensors **out);

#endif

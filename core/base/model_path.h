/* Paths that can name a model: a folder, or a GGUF file. */
#ifndef LATHE_BASE_MODEL_PATH_H
#define LATHE_BASE_MODEL_PATH_H

#include <stddef.h>
#include <stdint.h>

/** 1: the path is a regular file that begins with "GGUF" or whose name ends in ".gguf". A name in
 *  ".toml" is that of a run file, which is not opened to ask. */
int32_t lathe_path_is_gguf(const char *path);

/** 1: the file begins with "GGUF". It must be a regular file: a pipe would be read. */
int32_t lathe_file_begins_as_gguf(const char *path);

/** 1: there is a file or folder of this name in the folder. The question takes no memory, so that a
 * lack of memory is never taken for "no". */
int32_t lathe_folder_holds(const char *dir, const char *name);

/** 1: the path is a folder or a GGUF file. */
int32_t lathe_path_is_model(const char *path);

enum { LATHE_HUB_HINT = 1024 }; /* room for a hint */

/** Where `path` does not exist and `written`, the text that the user wrote for it, is of the form
 * of a model's name on the Hugging Face Hub, ORG/NAME: what to do, "; on the Hugging Face Hub? hf
 *  download ORG/NAME --local-dir PATH", in out[0, capacity). Else "": a path with more or fewer
 *  parts, one that begins with "/", "." or "~", and one whose folder exists are paths of this
 *  machine. Returns out. */
const char *lathe_hub_hint_of(const char *written, const char *path, char *out, size_t capacity);

/** lathe_hub_hint_of for a path that stands as it was written. */
const char *lathe_hub_hint(const char *path, char *out, size_t capacity);

/** Where `path` is a folder that holds no adapter, but folders in it do, as PEFT saves adapters
 * with names: "; 2 of its folders hold an adapter, such as PATH/NAME: name one of them", in out[0,
 *  LATHE_HUB_HINT). Else "". Returns out. */
const char *lathe_adapters_hint(const char *path, char *out);

/** Like lathe_adapters_hint, for a folder that holds no model: also where folders in it hold
 *  models, as the trainer of transformers saves its checkpoints. */
const char *lathe_models_hint(const char *path, char *out);

#endif

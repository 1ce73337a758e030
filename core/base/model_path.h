/* Paths that can name a model: a folder, or a GGUF file. */
#ifndef LATHE_BASE_MODEL_PATH_H
#define LATHE_BASE_MODEL_PATH_H

#include <stdint.h>

/** 1: the path is a regular file that begins with "GGUF" or whose name ends in ".gguf". */
int32_t lathe_path_is_gguf(const char *path);

/** 1: the file begins with "GGUF". It must be a regular file: a pipe would be read. */
int32_t lathe_file_begins_as_gguf(const char *path);

/** 1: the path is a folder or a GGUF file. */
int32_t lathe_path_is_model(const char *path);

#endif

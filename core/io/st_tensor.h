/* One tensor of a safetensors file, and the names of dtypes in the format. */
#ifndef LATHE_IO_ST_TENSOR_H
#define LATHE_IO_ST_TENSOR_H

#include "lathe/tensor.h"

/** One tensor. `data` points into the mapping and may be unaligned (read it with lathe_convert or
 *  memcpy); `file` is the path of its file. Borrowed from the set. */
typedef struct lathe_st_tensor {
    const char *name;
    const char *file;
    const void *data;
    int64_t offset; /* offset of the data in the file */
    lathe_desc desc;
} lathe_st_tensor;

/** Name of a dtype in the format ("F32", "BF16", ...), and dtype of a name (-1: unknown). */
const char *lathe_st_dtype_text(int32_t dtype);
int32_t lathe_st_dtype_find(const char *text);

#endif

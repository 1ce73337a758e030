/* One tensor of a safetensors file, and the names of dtypes in the format. */
#ifndef LATHE_FILES_ST_TENSOR_H
#define LATHE_FILES_ST_TENSOR_H

#include "lathe/status.h"
#include "lathe/tensor.h"

struct lathe_st_tensor;

/** Decodes rows [begin, begin + n) of a tensor that its file holds encoded. A row is the last
 *  dimension. `data` is the tensor's; out f32[n * columns]. Any thread. */
typedef lathe_status (*lathe_st_decode_fn)(const struct lathe_st_tensor *t, int64_t begin,
                                           int64_t n, float *out);

/** One tensor. `data` points into the mapping and may be unaligned (read it with lathe_st_read or
 *  memcpy); `file` is the path of its file. Borrowed from the set.
 *
 *  decode NULL: `data` holds the elements in desc.dtype. Otherwise the file has another encoding
 *  (GGUF, planes of quantized weights), `data` is for decode() alone, and desc.dtype, F32, BF16 or
 *  F16, is the dtype that holds the decoded values exactly. */
typedef struct lathe_st_tensor {
    const char *name;
    const char *file;
    const void *data;
    int64_t offset; /* offset of the data in the file */
    lathe_desc desc;
    lathe_st_decode_fn decode;
    const void *coding; /* for decode() */
    /* Members dtype and shape of the header, where desc cannot say them: "\"dtype\":\"F8_E8M0\",
     * \"shape\":[4]". desc then lists the elements, or the bytes as U8 if the dtype is not known
     * (lathe_safetensors_open_all). NULL: desc says all. */
    const char *header;
} lathe_st_tensor;

/** out[n] = elements [begin, begin + n) of a tensor, in the dtype F32, BF16 or F16, rounded once
 *  to nearest even. LATHE_E_DTYPE: the tensor holds no floats. LATHE_E_NOMEM. Any thread. */
lathe_status lathe_st_read(const lathe_st_tensor *t, int64_t begin, int64_t n, void *out,
                           int32_t dtype);

/** Name of a dtype in the format ("F32", "BF16", ...), and dtype of a name (-1: unknown). */
const char *lathe_st_dtype_text(int32_t dtype);
int32_t lathe_st_dtype_find(const char *text);

#endif

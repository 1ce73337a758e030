/* Types of tensors in GGUF files: their numbers, names and blocks.
 *
 * A row of a tensor is stored as blocks of `block` elements, `bytes` bytes each.
 */
#ifndef LATHE_FILES_GGUF_TYPE_H
#define LATHE_FILES_GGUF_TYPE_H

#include <stdint.h>

/* The numbers are those of the format (enum ggml_type). */
enum {
    LATHE_GGUF_F32 = 0,
    LATHE_GGUF_F16 = 1,
    LATHE_GGUF_Q4_0 = 2,
    LATHE_GGUF_Q4_1 = 3,
    LATHE_GGUF_Q5_0 = 6,
    LATHE_GGUF_Q5_1 = 7,
    LATHE_GGUF_Q8_0 = 8,
    LATHE_GGUF_Q2_K = 10,
    LATHE_GGUF_Q3_K = 11,
    LATHE_GGUF_Q4_K = 12,
    LATHE_GGUF_Q5_K = 13,
    LATHE_GGUF_Q6_K = 14,
    LATHE_GGUF_IQ4_NL = 20,
    LATHE_GGUF_IQ4_XS = 23,
    LATHE_GGUF_BF16 = 30,
    LATHE_GGUF_MXFP4 = 39
};

typedef struct lathe_gguf_type {
    int32_t type;
    const char *name; /* "Q4_K" */
    int32_t block;    /* elements of a block; 1 for floats */
    int32_t bytes;    /* of a block */
    int32_t encodes;  /* 1: lathe_gguf_encode writes it */
} lathe_gguf_type;

/** The type of that number; NULL: Lathe does not read it. */
const lathe_gguf_type *lathe_gguf_type_of(int32_t type);

/** Name of any type that the format has, also of those that Lathe does not read; NULL: a number
 *  that the format does not have. */
const char *lathe_gguf_type_name(int64_t type);

/** Bytes of a row of `cols` elements, a multiple of the block. */
int64_t lathe_gguf_row_bytes(const lathe_gguf_type *type, int64_t cols);

#endif

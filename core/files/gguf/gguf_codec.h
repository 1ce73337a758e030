/* Decodes and encodes rows of tensors of GGUF files.
 *
 * Decoded values are those of gguf-py, bit for bit: one rounding per multiplication and one per
 * addition, in f32.
 */
#ifndef LATHE_FILES_GGUF_CODEC_H
#define LATHE_FILES_GGUF_CODEC_H

#include "files/gguf/gguf_type.h"
#include "lathe/status.h"

/** out[n] = the values of n / block blocks. n is a multiple of the block; blocks may be unaligned.
 *  Any thread. */
void lathe_gguf_decode(const lathe_gguf_type *type, const void *blocks, int64_t n, float *out);

/** Like lathe_gguf_decode, on all threads of the pool. */
void lathe_gguf_decode_all(const lathe_gguf_type *type, const void *blocks, int64_t n, float *out);

/** blocks = the n values x in type->encodes. On all threads of the pool.
 *
 *  F32, F16, BF16: rounded to nearest even. Q8_0, Q4_0, Q5_0: the bytes of gguf-py (and of
 *  llama.cpp). Q4_K, Q6_K: scales by a search for the least squared error; the blocks have the
 *  layout of llama.cpp, with other scales than it would choose.
 *
 *  Errors  LATHE_E_NUMERIC: a value is not finite (except for F32 and BF16), or a value or a scale
 *          is too large for F16; the message says which value.
 */
lathe_status lathe_gguf_encode(const lathe_gguf_type *type, const float *x, int64_t n,
                               void *blocks);

/* ---- for gguf_encode.c: one super-block of 256 values ---- */

/** Returns 0 if a scale is too large for F16. */
int lathe__gguf_encode_q4_k(const float *x, uint8_t *block);
int lathe__gguf_encode_q6_k(const float *x, uint8_t *block);

#endif

/* Encodes and decodes changes of weights. */
#include "parallel/islands/delta_codec.h"

#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "lathe/dtype.h"

enum { GRAIN = 64 }; /* blocks of a thread at least */

typedef struct coding {
    int32_t dtype;
    const float *x;
    float *to;
    unsigned char *scales, *codes; /* of n numbers; not aligned */
    int64_t n;
} coding;

static int64_t block_of(int32_t dtype)
{
    return dtype == LATHE_DELTA_INT4 ? 64 : 256;
}

static int is_integer(int32_t dtype)
{
    return dtype == LATHE_DELTA_INT8 || dtype == LATHE_DELTA_INT4;
}

int32_t lathe_delta_has_error(int32_t dtype)
{
    return is_integer(dtype);
}

int64_t lathe_delta_bytes(int32_t dtype, int64_t n)
{
    const int64_t block = block_of(dtype), scales = (n + block - 1) / block * 4;
    switch (dtype) {
    case LATHE_DELTA_FP32:
        return 4 * n;
    case LATHE_DELTA_BF16:
    case LATHE_DELTA_FP16:
        return 2 * n;
    case LATHE_DELTA_INT8:
        return scales + n;
    default:
        return scales + (n + 1) / 2;
    }
}

static coding make(int32_t dtype, int64_t n, void *bytes)
{
    const int64_t block = block_of(dtype), scales = (n + block - 1) / block * 4;
    coding c = {.dtype = dtype, .scales = bytes, .codes = bytes, .n = n};
    if (is_integer(dtype))
        c.codes += scales;
    return c;
}

/* ---- blocks of integers ---- */

static float scale_of(const float *x, int64_t n, float max)
{
    float largest = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return (float)NAN;
        largest = fmaxf(largest, fabsf(x[i]));
    }
    return largest / max;
}

static int code_of(float x, float scale, float max)
{
    if (!(scale > 0.0f)) /* all are 0, or tiny; or not finite */
        return 0;
    const float q = rintf(x / scale);
    return (int)(q < -max ? -max : q > max ? max : q);
}

static void encode_block(const coding *c, int64_t b)
{
    const int64_t block = block_of(c->dtype), at = b * block;
    const int64_t n = c->n - at < block ? c->n - at : block;
    const float max = c->dtype == LATHE_DELTA_INT4 ? 7.0f : 127.0f;
    const float scale = scale_of(c->x + at, n, max);
    memcpy(c->scales + 4 * b, &scale, sizeof scale);
    for (int64_t i = 0; i < n; i++) {
        const int q = code_of(c->x[at + i], scale, max);
        unsigned char *to = c->codes + (c->dtype == LATHE_DELTA_INT4 ? (at + i) / 2 : at + i);
        if (c->dtype == LATHE_DELTA_INT8)
            *to = (unsigned char)(signed char)q;
        else if (i % 2 == 0)
            *to = (unsigned char)(q + 8);
        else
            *to = (unsigned char)(*to | (q + 8) << 4);
    }
}

static void decode_block(const coding *c, int64_t b)
{
    const int64_t block = block_of(c->dtype), at = b * block;
    const int64_t n = c->n - at < block ? c->n - at : block;
    float scale;
    memcpy(&scale, c->scales + 4 * b, sizeof scale);
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = at + i;
        const int q = c->dtype == LATHE_DELTA_INT8 ? (int)(signed char)c->codes[k]
                      : k % 2 == 0                 ? (c->codes[k / 2] & 15) - 8
                                                   : (c->codes[k / 2] >> 4) - 8;
        c->to[k] = (float)q * scale;
    }
}

static void encode_blocks(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    for (int64_t b = begin; b < end; b++)
        encode_block(arg, b);
}

static void decode_blocks(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    for (int64_t b = begin; b < end; b++)
        decode_block(arg, b);
}

/* ---- numbers of 16 bits ---- */

static void narrow(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const coding *c = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const uint16_t h =
            c->dtype == LATHE_DELTA_BF16 ? lathe_f32_to_bf16(c->x[i]) : lathe_f32_to_f16(c->x[i]);
        memcpy(c->codes + 2 * i, &h, sizeof h);
    }
}

static void widen(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const coding *c = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        uint16_t h;
        memcpy(&h, c->codes + 2 * i, sizeof h);
        c->to[i] = c->dtype == LATHE_DELTA_BF16 ? lathe_bf16_to_f32(h) : lathe_f16_to_f32(h);
    }
}

void lathe_delta_encode(int32_t dtype, const float *x, int64_t n, void *out)
{
    coding c = make(dtype, n, out);
    const int64_t block = block_of(dtype);
    c.x = x;
    if (dtype == LATHE_DELTA_FP32)
        lathe_parallel_copy(out, x, 4 * n);
    else if (is_integer(dtype))
        lathe_parallel_for((n + block - 1) / block, GRAIN, encode_blocks, &c);
    else
        lathe_parallel_for(n, GRAIN * block, narrow, &c);
}

void lathe_delta_decode(int32_t dtype, const void *in, int64_t n, float *x)
{
    coding c = make(dtype, n, (void *)(uintptr_t)in);
    const int64_t block = block_of(dtype);
    c.to = x;
    if (dtype == LATHE_DELTA_FP32)
        lathe_parallel_copy(x, in, 4 * n);
    else if (is_integer(dtype))
        lathe_parallel_for((n + block - 1) / block, GRAIN, decode_blocks, &c);
    else
        lathe_parallel_for(n, GRAIN * block, widen, &c);
}

/* Encodes values as blocks of GGUF tensors: floats and the formats with one scale per block. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "files/gguf/gguf_codec.h"
#include "lathe/dtype.h"

#define F16_LIMIT 65520.0f /* the smallest value that F16 rounds to infinity */

static int put_half(uint8_t *to, float x)
{
    const uint16_t bits = lathe_f32_to_f16(x);
    memcpy(to, &bits, 2);
    return fabsf(x) < F16_LIMIT;
}

/* The value of largest magnitude, the first of several, with its sign. */
static float largest(const float *x, int n)
{
    float max = x[0];
    for (int i = 1; i < n; i++)
        if (fabsf(x[i]) > fabsf(max))
            max = x[i];
    return max;
}

static int32_t clamp_int(int32_t q, int32_t lo, int32_t hi)
{
    return q < lo ? lo : q > hi ? hi : q;
}

static int q8_0(const float *x, uint8_t *b)
{
    const float d = fabsf(largest(x, 32)) / 127.0f;
    const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
    for (int i = 0; i < 32; i++)
        b[2 + i] = (uint8_t)(int8_t)clamp_int((int32_t)roundf(x[i] * inverse), -127, 127);
    return put_half(b, d);
}

/* q of 0 to 2*half - 1 so that y = d*(q - half); the largest value gets q = 0. */
static float halves(const float *x, int half, uint8_t q[32])
{
    const float d = largest(x, 32) / (float)-half;
    const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
    for (int i = 0; i < 32; i++)
        q[i] =
            (uint8_t)clamp_int((int32_t)(x[i] * inverse + ((float)half + 0.5f)), 0, 2 * half - 1);
    return d;
}

static int q4_0(const float *x, uint8_t *b)
{
    uint8_t q[32];
    const float d = halves(x, 8, q);
    for (int i = 0; i < 16; i++)
        b[2 + i] = (uint8_t)(q[i] | q[i + 16] << 4);
    return put_half(b, d);
}

static int q5_0(const float *x, uint8_t *b)
{
    uint8_t q[32];
    uint32_t high = 0;
    const float d = halves(x, 16, q);
    for (int i = 0; i < 32; i++)
        high |= (uint32_t)(q[i] >> 4) << i;
    for (int i = 0; i < 16; i++)
        b[6 + i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
    memcpy(b + 2, &high, 4);
    return put_half(b, d);
}

static int f32(const float *x, uint8_t *b)
{
    memcpy(b, x, 4);
    return 1;
}

static int f16(const float *x, uint8_t *b)
{
    return put_half(b, *x);
}

static int bf16(const float *x, uint8_t *b)
{
    const uint16_t bits = lathe_f32_to_bf16(*x);
    memcpy(b, &bits, 2);
    return 1;
}

typedef int (*encode_fn)(const float *x, uint8_t *block);

static encode_fn codec_of(int32_t type)
{
    static const struct {
        int32_t type;
        encode_fn encode;
    } codecs[] = {{LATHE_GGUF_F32, f32},
                  {LATHE_GGUF_F16, f16},
                  {LATHE_GGUF_BF16, bf16},
                  {LATHE_GGUF_Q8_0, q8_0},
                  {LATHE_GGUF_Q4_0, q4_0},
                  {LATHE_GGUF_Q5_0, q5_0},
                  {LATHE_GGUF_Q4_K, lathe__gguf_encode_q4_k},
                  {LATHE_GGUF_Q6_K, lathe__gguf_encode_q6_k}};
    for (size_t k = 0; k < sizeof codecs / sizeof codecs[0]; k++)
        if (codecs[k].type == type)
            return codecs[k].encode;
    return NULL;
}

typedef struct job {
    const lathe_gguf_type *type;
    encode_fn encode;
    const float *x;
    uint8_t *blocks;
    atomic_llong bad; /* first block that cannot be encoded; -1: none */
} job;

static void note_bad(job *j, int64_t block)
{
    long long seen = atomic_load(&j->bad);
    while ((seen < 0 || block < seen) && !atomic_compare_exchange_weak(&j->bad, &seen, block))
        ;
}

static void encode_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    job *j = arg;
    const int n = j->type->block;
    const int any = j->type->type == LATHE_GGUF_F32 || j->type->type == LATHE_GGUF_BF16;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float *x = j->x + i * n;
        int good = 1;
        for (int k = 0; k < n && !any; k++)
            good &= isfinite(x[k]) != 0;
        if (!good || !j->encode(x, j->blocks + i * j->type->bytes))
            note_bad(j, i);
    }
}

lathe_status lathe_gguf_encode(const lathe_gguf_type *type, const float *x, int64_t n, void *blocks)
{
    job j = {type, codec_of(type->type), x, blocks, -1};
    if (j.encode == NULL)
        return lathe_error(LATHE_E_UNSUPPORTED, "Lathe does not write tensors of type %s",
                           type->name);
    lathe_parallel_for(n / type->block, 4096 / type->block, encode_range, &j);
    const int64_t bad = atomic_load(&j.bad);
    if (bad < 0)
        return LATHE_OK;
    const float max = largest(x + bad * type->block, type->block);
    for (int k = 0; k < type->block; k++)
        if (!isfinite(x[bad * type->block + k]))
            return lathe_error(LATHE_E_NUMERIC, "value %lld is not finite",
                               (long long)(bad * type->block + k));
    return lathe_error(LATHE_E_NUMERIC,
                       "a value near element %lld is %g, too large for %s: use bf16 or f32",
                       (long long)(bad * type->block), (double)max, type->name);
}

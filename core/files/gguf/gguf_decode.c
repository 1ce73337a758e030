/* Decodes blocks of GGUF tensors. */
#include <string.h>

#include "base/parallel.h"
#include "files/gguf/gguf_codec.h"
#include "lathe/dtype.h"

static float half_at(const uint8_t *p)
{
    uint16_t bits;
    memcpy(&bits, p, 2);
    return lathe_f16_to_f32(bits);
}

/* d f16, 16 bytes: q of elements i and i + 16 in the low and high half. y = d*(q - 8) */
static void q4_0(const uint8_t *b, float *y)
{
    const float d = half_at(b);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((b[2 + i] & 15) - 8);
        y[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

/* d, m f16, 16 bytes. y = d*q + m */
static void q4_1(const uint8_t *b, float *y)
{
    const float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)(b[4 + i] & 15) + m;
        y[i + 16] = d * (float)(b[4 + i] >> 4) + m;
    }
}

/* The fifth bits of 32 elements. */
static uint32_t high_bits(const uint8_t *p)
{
    uint32_t bits;
    memcpy(&bits, p, 4);
    return bits;
}

/* d f16, 32 fifth bits, 16 bytes. y = d*(q - 16) */
static void q5_0(const uint8_t *b, float *y)
{
    const float d = half_at(b);
    const uint32_t high = high_bits(b + 2);
    for (int i = 0; i < 16; i++) {
        const int32_t low = (b[6 + i] & 15) | (int32_t)(high >> i & 1) << 4;
        const int32_t up = (b[6 + i] >> 4) | (int32_t)(high >> (i + 16) & 1) << 4;
        y[i] = d * (float)(low - 16);
        y[i + 16] = d * (float)(up - 16);
    }
}

/* d, m f16, 32 fifth bits, 16 bytes. y = d*q + m */
static void q5_1(const uint8_t *b, float *y)
{
    const float d = half_at(b), m = half_at(b + 2);
    const uint32_t high = high_bits(b + 4);
    for (int i = 0; i < 16; i++) {
        const int32_t low = (b[8 + i] & 15) | (int32_t)(high >> i & 1) << 4;
        const int32_t up = (b[8 + i] >> 4) | (int32_t)(high >> (i + 16) & 1) << 4;
        y[i] = d * (float)low + m;
        y[i + 16] = d * (float)up + m;
    }
}

/* d f16, 32 signed bytes. y = d*q */
static void q8_0(const uint8_t *b, float *y)
{
    const float d = half_at(b);
    for (int i = 0; i < 32; i++)
        y[i] = (float)(int8_t)b[2 + i] * d;
}

/* Scale and minimum, 6 bits each, of 32 elements: 0..3 in bytes 0..3 and 4..7, of 4..7 the low four
 * bits in bytes 8..11 and the high two in bits 6 and 7 of bytes 0..7. */
static void scale_min(const uint8_t *s, int j, float *scale, float *min)
{
    const int low = j < 4;
    *scale = (float)(low ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
    *min = (float)(low ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4);
}

/* d, dmin f16, 12 bytes of scales, 128 bytes: 4 times 32 elements in the low halves and the next 32
 * in the high ones. y = d*scale*q - dmin*min */
static void q4_k(const uint8_t *b, float *y)
{
    const float d = half_at(b), dmin = half_at(b + 2);
    for (int j = 0; j < 8; j++) {
        const uint8_t *q = b + 16 + 32 * (j / 2);
        float scale, min;
        scale_min(b + 4, j, &scale, &min);
        const float ds = d * scale, dm = dmin * min;
        for (int i = 0; i < 32; i++)
            y[32 * j + i] = ds * (float)(q[i] >> (j % 2 * 4) & 15) - dm;
    }
}

/* Q4_K with 32 bytes of fifth bits before the 128: bit j of byte i is that of element 32*j + i. */
static void q5_k(const uint8_t *b, float *y)
{
    const float d = half_at(b), dmin = half_at(b + 2);
    const uint8_t *high = b + 16;
    for (int j = 0; j < 8; j++) {
        const uint8_t *q = b + 48 + 32 * (j / 2);
        float scale, min;
        scale_min(b + 4, j, &scale, &min);
        const float ds = d * scale, dm = dmin * min;
        for (int i = 0; i < 32; i++)
            y[32 * j + i] = ds * (float)((q[i] >> (j % 2 * 4) & 15) | (high[i] >> j & 1) << 4) - dm;
    }
}

/* 128 bytes of low halves, 64 of the two high bits, 16 signed scales, d f16. In each half of 128
 * elements: element 32*j + i has its low half in byte 32*(j%2) + i (high half of the byte for j of
 * 2 and 3) and its high bits at 2*j of byte i. y = d*scale*(q - 32) */
static void q6_k(const uint8_t *b, float *y)
{
    const float d = half_at(b + 208);
    for (int h = 0; h < 2; h++) {
        const uint8_t *low = b + 64 * h, *high = b + 128 + 32 * h, *scales = b + 192 + 8 * h;
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < 32; i++) {
                const int32_t q =
                    (low[32 * (j % 2) + i] >> (j / 2 * 4) & 15) | (high[i] >> (2 * j) & 3) << 4;
                const float ds = d * (float)(int8_t)scales[2 * j + i / 16];
                y[128 * h + 32 * j + i] = ds * (float)(q - 32);
            }
    }
}

/* 16 bytes with scale (low half) and minimum of 16 elements each, 64 bytes of codes, d, dmin f16.
 * In each half of 128 elements, 32*j + i has its two bits at 2*j of byte i. y = d*scale*q -
 * dmin*min */
static void q2_k(const uint8_t *b, float *y)
{
    const float d = half_at(b + 80), dmin = half_at(b + 82);
    for (int i = 0; i < 256; i++) {
        const uint8_t pair = b[i / 16];
        const int code = b[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        const float ds = d * (float)(pair & 15), dm = dmin * (float)(pair >> 4);
        y[i] = ds * (float)code - dm;
    }
}

/* 32 bytes of third bits, 64 of codes as in Q2_K, 12 of scales, d f16. Scale k of 16 elements has
 * its low four bits in byte k % 8 (high half for k of 8 and more) and two bits in byte 8 + k % 4.
 * The third bit of element 32*j + i of the weight is bit j of byte i; 0 subtracts 4.
 * y = d*(scale - 32)*q */
static void q3_k(const uint8_t *b, float *y)
{
    const uint8_t *const codes = b + 32, *const scales = b + 96;
    const float d = half_at(b + 108);
    for (int i = 0; i < 256; i++) {
        const int k = i / 16;
        const int scale =
            (scales[k % 8] >> (k / 8 * 4) & 15) | (scales[8 + k % 4] >> (k / 4 * 2) & 3) << 4;
        const int low = codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        const int high = b[i % 32] >> (i / 32) & 1;
        y[i] = d * (float)(scale - 32) * (float)(low - (high ? 0 : 4));
    }
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/* d f16, 16 bytes: codes of elements i and i + 16 in the low and high half. y = d*value */
static void iq4_nl(const uint8_t *b, float *y)
{
    const float d = half_at(b);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)iq4_values[b[2 + i] & 15];
        y[i + 16] = d * (float)iq4_values[b[2 + i] >> 4];
    }
}

/* d f16, 16 bits with the high two of each scale, 4 bytes with its low four, 128 bytes of codes: 16
 * for 32 elements, as in IQ4_NL. y = d*(scale - 32)*value */
static void iq4_xs(const uint8_t *b, float *y)
{
    const float d = half_at(b);
    for (int k = 0; k < 8; k++) {
        const int high = (b[2] | b[3] << 8) >> (2 * k) & 3, low = b[4 + k / 2] >> (k % 2 * 4) & 15;
        const float ds = d * (float)((low | high << 4) - 32);
        const uint8_t *const codes = b + 8 + 16 * k;
        for (int i = 0; i < 16; i++) {
            y[32 * k + i] = ds * (float)iq4_values[codes[i] & 15];
            y[32 * k + i + 16] = ds * (float)iq4_values[codes[i] >> 4];
        }
    }
}

/* An exponent e, 16 bytes with codes of E2M1 as in Q4_0. y = 2^(e - 128)*(twice the value) */
static void mxfp4(const uint8_t *b, float *y)
{
    static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const uint32_t bits = b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23;
    float d;
    memcpy(&d, &bits, sizeof d);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)doubled[b[1 + i] & 15];
        y[i + 16] = d * (float)doubled[b[1 + i] >> 4];
    }
}

static void floats(int32_t type, const uint8_t *from, int64_t n, float *out)
{
    if (type == LATHE_GGUF_F32) {
        memcpy(out, from, (size_t)n * 4);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, 2);
        out[i] = type == LATHE_GGUF_BF16 ? lathe_bf16_to_f32(bits) : lathe_f16_to_f32(bits);
    }
}

void lathe_gguf_decode(const lathe_gguf_type *type, const void *blocks, int64_t n, float *out)
{
    static const struct {
        int32_t type;
        void (*decode)(const uint8_t *block, float *y);
    } codecs[] = {
        {LATHE_GGUF_Q4_0, q4_0},  {LATHE_GGUF_Q4_1, q4_1},     {LATHE_GGUF_Q5_0, q5_0},
        {LATHE_GGUF_Q5_1, q5_1},  {LATHE_GGUF_Q8_0, q8_0},     {LATHE_GGUF_Q4_K, q4_k},
        {LATHE_GGUF_Q5_K, q5_k},  {LATHE_GGUF_Q6_K, q6_k},     {LATHE_GGUF_Q2_K, q2_k},
        {LATHE_GGUF_Q3_K, q3_k},  {LATHE_GGUF_IQ4_NL, iq4_nl}, {LATHE_GGUF_IQ4_XS, iq4_xs},
        {LATHE_GGUF_MXFP4, mxfp4}};
    const uint8_t *from = blocks;
    if (type->block == 1) {
        floats(type->type, from, n, out);
        return;
    }
    for (size_t k = 0; k < sizeof codecs / sizeof codecs[0]; k++)
        if (codecs[k].type == type->type)
            for (int64_t i = 0; i < n / type->block; i++)
                codecs[k].decode(from + i * type->bytes, out + i * type->block);
}

typedef struct job {
    const lathe_gguf_type *type;
    const uint8_t *blocks;
    float *out;
} job;

static void decode_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = arg;
    (void)worker;
    lathe_gguf_decode(j->type, j->blocks + begin * j->type->bytes, (end - begin) * j->type->block,
                      j->out + begin * j->type->block);
}

void lathe_gguf_decode_all(const lathe_gguf_type *type, const void *blocks, int64_t n, float *out)
{
    job j = {type, blocks, out};
    lathe_parallel_for(n / type->block, 16384 / type->block, decode_range, &j);
}

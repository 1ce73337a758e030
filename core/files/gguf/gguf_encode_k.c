/* Encodes super-blocks of 256 values: Q4_K and Q6_K.
 *
 * For each part of a super-block, scales near the one that just covers the range of its values are
 * tried; each is improved by least squares for the codes that it gives, and the one with the least
 * squared error is kept. The scales of the parts are then rounded to 6 or 8 bits, and the codes are
 * chosen again for the rounded scales, with their neighbours.
 *
 *   Source  the layout: ggml-quants.h of llama.cpp; the search: ours. The error is compared with
 *           llama.cpp's in docs/gguf.md.
 */
#include <math.h>
#include <string.h>

#include "files/gguf/gguf_codec.h"
#include "lathe/dtype.h"

#define F16_LIMIT 65520.0f

static int32_t nearest(float x, int32_t lo, int32_t hi)
{
    const int32_t q = (int32_t)lrintf(x);
    return q < lo ? lo : q > hi ? hi : q;
}

/* The f16 nearest to x, as float. */
static float put_half(uint8_t *to, float x)
{
    const uint16_t bits = lathe_f32_to_f16(x);
    memcpy(to, &bits, 2);
    return lathe_f16_to_f32(bits);
}

/* ---- Q4_K: x = scale*q - min, q 0..15, scale and min at least 0 ---- */

/* Sum of (x - (scale*q - min))^2 over 32 values, with the best codes; codes may be NULL. */
static float error_4(const float *x, float scale, float min, uint8_t *codes)
{
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    float sum = 0.0f;
    for (int i = 0; i < 32; i++) {
        float q = rintf((x[i] + min) * inverse);
        q = q < 0.0f ? 0.0f : q > 15.0f ? 15.0f : q;
        const float e = x[i] - (scale * q - min);
        sum += e * e;
        if (codes != NULL)
            codes[i] = (uint8_t)q;
    }
    return sum;
}

/* The scale and minimum that fit best the codes that (scale, min) give. */
static void refit_4(const float *x, float *scale, float *min)
{
    const float inverse = 1.0f / *scale;
    float sq = 0.0f, sqq = 0.0f, sx = 0.0f, sxq = 0.0f;
    for (int i = 0; i < 32; i++) {
        float q = rintf((x[i] + *min) * inverse);
        q = q < 0.0f ? 0.0f : q > 15.0f ? 15.0f : q;
        sq += q;
        sqq += q * q;
        sx += x[i];
        sxq += x[i] * q;
    }
    const float det = 32.0f * sqq - sq * sq;
    if (!(det > 0.0f))
        return;
    float a = (32.0f * sxq - sx * sq) / det, b = (sqq * sx - sq * sxq) / det;
    if (b > 0.0f) {
        b = 0.0f;
        a = sxq / sqq;
    }
    if (a > 0.0f) {
        *scale = a;
        *min = -b;
    }
}

static void search_4(const float *x, float *out_scale, float *out_min)
{
    float lo = 0.0f, hi = x[0];
    for (int i = 0; i < 32; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    *out_min = -lo;
    *out_scale = 0.0f;
    if (!(hi - lo > 0.0f))
        return;
    float best = INFINITY;
    for (int k = -10; k <= 10; k++) {
        float scale = (hi - lo) / (15.0f + 0.2f * (float)k), min = -lo;
        for (int round = 0; round < 2; round++) {
            refit_4(x, &scale, &min);
            const float error = error_4(x, scale, min, NULL);
            if (error < best) {
                best = error;
                *out_scale = scale;
                *out_min = min;
            }
        }
    }
}

/* Codes of a part for rounded scales: the best of the rounded pair and its neighbours. */
static void settle_4(const float *x, float d, float dmin, int32_t *scale, int32_t *min,
                     uint8_t *codes)
{
    const int32_t s0 = *scale, m0 = *min;
    float best = INFINITY;
    for (int32_t s = s0 - 1; s <= s0 + 1; s++)
        for (int32_t m = m0 - 1; m <= m0 + 1; m++) {
            if (s < 0 || s > 63 || m < 0 || m > 63)
                continue;
            const float error = error_4(x, d * (float)s, dmin * (float)m, NULL);
            if (error < best) {
                best = error;
                *scale = s;
                *min = m;
            }
        }
    (void)error_4(x, d * (float)*scale, dmin * (float)*min, codes);
}

int lathe__gguf_encode_q4_k(const float *x, uint8_t *block)
{
    float scales[8], mins[8], max_scale = 0.0f, max_min = 0.0f;
    uint8_t codes[256];
    memset(block, 0, 144);
    for (int j = 0; j < 8; j++) {
        search_4(x + 32 * j, &scales[j], &mins[j]);
        max_scale = scales[j] > max_scale ? scales[j] : max_scale;
        max_min = mins[j] > max_min ? mins[j] : max_min;
    }
    const float d = put_half(block, max_scale / 63.0f);
    const float dmin = put_half(block + 2, max_min / 63.0f);
    uint8_t *s = block + 4;
    for (int j = 0; j < 8; j++) {
        int32_t scale = d > 0.0f ? nearest(scales[j] / d, 0, 63) : 0;
        int32_t min = dmin > 0.0f ? nearest(mins[j] / dmin, 0, 63) : 0;
        settle_4(x + 32 * j, d, dmin, &scale, &min, codes + 32 * j);
        if (j < 4) {
            s[j] = (uint8_t)(s[j] | scale);
            s[j + 4] = (uint8_t)(s[j + 4] | min);
        } else {
            s[j + 4] = (uint8_t)((scale & 15) | (min & 15) << 4);
            s[j - 4] = (uint8_t)(s[j - 4] | (scale >> 4) << 6);
            s[j] = (uint8_t)(s[j] | (min >> 4) << 6);
        }
    }
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 32; i++)
            block[16 + 32 * j + i] = (uint8_t)(codes[64 * j + i] | codes[64 * j + 32 + i] << 4);
    return max_scale / 63.0f < F16_LIMIT && max_min / 63.0f < F16_LIMIT;
}

/* ---- Q6_K: x = scale*q, q -32..31 ---- */

static float error_6(const float *x, float scale, int8_t *codes)
{
    const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    float sum = 0.0f;
    for (int i = 0; i < 16; i++) {
        float q = rintf(x[i] * inverse);
        q = q < -32.0f ? -32.0f : q > 31.0f ? 31.0f : q;
        const float e = x[i] - scale * q;
        sum += e * e;
        if (codes != NULL)
            codes[i] = (int8_t)q;
    }
    return sum;
}

static float refit_6(const float *x, float scale)
{
    const float inverse = 1.0f / scale;
    float sqq = 0.0f, sxq = 0.0f;
    for (int i = 0; i < 16; i++) {
        float q = rintf(x[i] * inverse);
        q = q < -32.0f ? -32.0f : q > 31.0f ? 31.0f : q;
        sqq += q * q;
        sxq += x[i] * q;
    }
    return sqq > 0.0f && sxq > 0.0f ? sxq / sqq : sqq > 0.0f && sxq < 0.0f ? sxq / sqq : scale;
}

static float search_6(const float *x)
{
    float max = 0.0f, best = INFINITY, out = 0.0f;
    for (int i = 0; i < 16; i++)
        if (fabsf(x[i]) > fabsf(max))
            max = x[i];
    if (max == 0.0f)
        return 0.0f;
    for (int k = -9; k <= 9; k++) {
        /* The largest value has a code near -32, the longer end of the range. */
        float scale = max / -(32.0f + 0.1f * (float)k);
        scale = refit_6(x, scale);
        const float error = error_6(x, scale, NULL);
        if (error < best) {
            best = error;
            out = scale;
        }
    }
    return out;
}

int lathe__gguf_encode_q6_k(const float *x, uint8_t *block)
{
    float scales[16], max = 0.0f;
    int8_t codes[256];
    memset(block, 0, 210);
    for (int j = 0; j < 16; j++) {
        scales[j] = search_6(x + 16 * j);
        if (fabsf(scales[j]) > fabsf(max))
            max = scales[j];
    }
    const float d = put_half(block + 208, max / -128.0f);
    for (int j = 0; j < 16; j++) {
        const int32_t first = d != 0.0f ? nearest(scales[j] / d, -128, 127) : 0;
        int32_t scale = first;
        float best = INFINITY;
        for (int32_t s = first - 1; s <= first + 1; s++) {
            const float error =
                s >= -128 && s <= 127 ? error_6(x + 16 * j, d * (float)s, NULL) : INFINITY;
            if (error < best) {
                best = error;
                scale = s;
            }
        }
        (void)error_6(x + 16 * j, d * (float)scale, codes + 16 * j);
        block[192 + j] = (uint8_t)(int8_t)scale;
    }
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < 32; i++) {
                const int q = codes[128 * h + 32 * j + i] + 32;
                uint8_t *low = &block[64 * h + 32 * (j % 2) + i];
                uint8_t *high = &block[128 + 32 * h + i];
                *low = (uint8_t)(*low | (q & 15) << (j / 2 * 4));
                *high = (uint8_t)(*high | (q >> 4) << (2 * j));
            }
    return fabsf(max / 128.0f) < F16_LIMIT;
}

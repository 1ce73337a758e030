/* Scale and zero point of a group of weights from its range, as GPTQ's and AWQ's quantizers take
 * them.
 *
 *   lo = min(w, 0), hi = max(w, 0); symmetric: hi = max(-lo, hi), lo = -hi
 *   scale = (hi - lo) / (2^bits - 1), rounded to the dtype in which it is stored
 *   zero = round(-lo / scale), symmetric: 2^(bits-1)
 *   q = clamp(round(w / scale) + zero, 0, 2^bits - 1),  W' = (q - zero) * scale
 *
 * Source: IST-DASLab/gptq, quant.py (Quantizer.find_params).
 */
#ifndef LATHE_QUANT_RANGE_QUANTIZER_H
#define LATHE_QUANT_RANGE_QUANTIZER_H

#include <math.h>

#include "lathe/dtype.h"

typedef struct range_params {
    float scale;     /* as stored: an f16 or bf16 number */
    int32_t zero;    /* 0 .. 2^bits - 1 */
    uint16_t bits16; /* the bits of the scale */
} range_params;

/** The parameters of n weights. dtype: of the stored scale, F16 or BF16; if it is not finite there,
 *  the caller refuses. least_zero: 1 where the layout cannot store a zero point of 0. */
static inline range_params range_of(const float *w, int64_t n, int64_t bits, int symmetric,
                                    int32_t least_zero, int32_t dtype)
{
    const float top = (float)((1 << bits) - 1);
    float lo = 0.0f, hi = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        lo = w[i] < lo ? w[i] : lo;
        hi = w[i] > hi ? w[i] : hi;
    }
    if (symmetric) {
        hi = -lo > hi ? -lo : hi;
        lo = -hi;
    }
    if (lo == 0.0f && hi == 0.0f) {
        lo = -1.0f;
        hi = 1.0f;
    }
    range_params p;
    p.bits16 = dtype == LATHE_BF16 ? lathe_f32_to_bf16((hi - lo) / top)
                                   : lathe_f32_to_f16((hi - lo) / top);
    if ((p.bits16 & 0x7fff) == 0)
        p.bits16 = 1; /* the smallest number */
    p.scale = dtype == LATHE_BF16 ? lathe_bf16_to_f32(p.bits16) : lathe_f16_to_f32(p.bits16);
    const float zero = symmetric ? (top + 1.0f) / 2.0f : rintf(-lo / p.scale);
    p.zero = (int32_t)(zero < (float)least_zero ? (float)least_zero : zero > top ? top : zero);
    return p;
}

static inline uint32_t range_code(const range_params *p, float w, int64_t bits)
{
    const float top = (float)((1 << bits) - 1), q = rintf(w / p->scale) + (float)p->zero;
    return (uint32_t)(q < 0.0f ? 0.0f : q > top ? top : q);
}

static inline float range_value(const range_params *p, uint32_t code)
{
    return (float)((int32_t)code - p->zero) * p->scale;
}

#endif

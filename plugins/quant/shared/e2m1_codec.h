/* Spans of E2M1 codes, two per byte with the first in the low nibble, on the host. */
#ifndef LATHE_E2M1_CODEC_H
#define LATHE_E2M1_CODEC_H

#include "shared/codec_tables.h"
#include "shared/quant_codec.h"
#include "shared/small_float.h"

/** The values of n <= CODEC_SPAN codes times the scale of their group, plus zero: -0 keeps the
 *  values as they are, 0 makes -0 a 0. n is a multiple of the group, which is one of 16. */
CODEC_BODY void e2m1_decode(const uint8_t *bytes, int64_t n, int64_t group, const float *scales,
                            float zero, float *out, int build)
{
    uint8_t codes[CODEC_SPAN];
    if (build == CODEC_AVX512) {
        wide_e2m1(bytes, n, group, scales, zero, out);
        return;
    }
    if (build == CODEC_AVX2) {
        eight_e2m1(bytes, n, group, scales, zero, out);
        return;
    }
    for (int64_t i = 0; i < n / 2; i++) {
        codes[2 * i] = bytes[i] & 15u;
        codes[2 * i + 1] = bytes[i] >> 4;
    }
    for (int64_t k = 0; k < n / group; k++)
        for (int64_t i = k * group; i < (k + 1) * group; i++)
            out[i] = small_e2m1(codes[i]) * scales[k] + zero;
}

#if defined(__x86_64__)
CODEC_WIDE static void e2m1_wide_values(const float *scales, int64_t n, int is_exact, float *values,
                                        int32_t dtype)
{
    const __m512 map = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                      -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    const wide_factors f = {map, NULL, scales, is_exact};
    if (dtype == LATHE_BF16)
        wide_products(&f, n, values, 16, LATHE_BF16);
    else
        wide_products(&f, n, values, 16, dtype);
}
#else /* the build for AVX-512 is never chosen */
static inline void e2m1_wide_values(const float *scales, int64_t n, int is_exact, float *values,
                                    int32_t dtype)
{
    (void)is_exact;
    for (int64_t i = 0; i < 16 * n; i++)
        values[i] = codec_rounded(small_e2m1((uint32_t)(i % 16)) * scales[i / 16], dtype);
}
#endif

/** values [n][16]: those of the 16 codes times each of n scales, rounded to dtype. is_exact: all
 * are numbers of that dtype. */
static inline void e2m1_values(const float *scales, int64_t n, int is_exact, float *values,
                               int32_t dtype, int32_t build)
{
    if (build == CODEC_AVX512) {
        e2m1_wide_values(scales, n, is_exact, values, dtype);
        return;
    }
    for (int64_t i = 0; i < 16 * n; i++)
        values[i] = codec_rounded(small_e2m1((uint32_t)(i % 16)) * scales[i / 16], dtype);
}

/** lathe_quant_v1.codes: the codes in a plane, in groups of `group` columns. */
static inline lathe_weight_codes e2m1_codes(int32_t plane, int64_t group)
{
    lathe_weight_codes codes = {.order = LATHE_CODES_LOW_FIRST,
                                .bits = 4,
                                .values = LATHE_VALUES_TABLE,
                                .plane = plane,
                                .group = group};
    for (uint32_t i = 0; i < 16; i++)
        codes.table[i] = small_e2m1(i);
    return codes;
}

/** Divides n values by the scale and packs their codes; n is even, the scale above 0. */
CODEC_BODY void e2m1_encode(const float *w, int64_t n, float scale, uint8_t *bytes)
{
    uint8_t codes[CODEC_SPAN];
    for (int64_t i = 0; i < n; i++)
        codes[i] = small_to_e2m1(w[i] / scale);
    for (int64_t i = 0; i < n / 2; i++)
        bytes[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
}

#endif

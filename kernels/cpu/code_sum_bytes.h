/* Sums with codes of eight bits that lie row by row: widened to f32 and multiplied with x in f32,
 * which an FMA reads from memory. */
#ifndef LATHE_CPU_CODE_SUM_BYTES_H
#define LATHE_CPU_CODE_SUM_BYTES_H

#include <math.h>

#include "code_sum_view.h"

#if MULTIPLIES_BF16

/* The values of the first 16 bytes, or of those whose lanes are set. E4M3, except NaN, is f16 with
 * three more bits of the exponent: shifted there it is 2^-8 of its value, which the scale has. */
CPU_INLINE vf byte_values(const uint8_t *p, __mmask16 lanes, int values)
{
    const __m128i codes = _mm_maskz_loadu_epi8(lanes, p);
    if (values == LATHE_VALUES_U8)
        return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes));
    if (values == LATHE_VALUES_I8)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
    const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(shifted, _mm256_set1_epi16((int16_t)0xbf80)));
}

/* Whether one of the first n <= 64 codes is NaN. */
CPU_INLINE __mmask64 nan_codes(const uint8_t *p, int64_t n)
{
    const __mmask64 lanes = n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
    const __m512i magnitude =
        _mm512_and_si512(_mm512_maskz_loadu_epi8(lanes, p), _mm512_set1_epi8(0x7f));
    return _mm512_cmpeq_epi8_mask(magnitude, _mm512_set1_epi8(0x7f));
}

/* Where the 64 columns from `at` on lie in row j of the part. */
CPU_INLINE const uint8_t *byte_place(const sum_view *v, int64_t j, int64_t at, int is_paired)
{
    return is_paired ? v->codes + j / 2 * 2 * v->row_bytes + j % 2 * 64 + 2 * at
                     : v->codes + j * v->row_bytes + at;
}

CPU_INLINE void byte_tile(const sum_view *v, int64_t r, int64_t j, int rows, int columns,
                          int values, int is_paired)
{
    const int is_e4m3 = values == LATHE_VALUES_E4M3;
    const float unit = is_e4m3 ? 256.0f : 1.0f;
    vf acc[4][4];
    __mmask64 nan[4] = {0};
#pragma GCC unroll 16
    for (int t = 0; t < rows * columns; t++)
        acc[t / columns][t % columns] = v_zero();
    for (int64_t g = 0, at = 0; g < v->groups; g++) {
        const int64_t end = (g + 1) * v->group < v->cols ? (g + 1) * v->group : v->cols;
        vf sum[4][4];
#pragma GCC unroll 16
        for (int t = 0; t < rows * columns; t++)
            sum[t / columns][t % columns] = v_zero();
        for (; at < end; at += 64) {
            const int64_t left = end - at;
            const float *const x = (const float *)(const void *)(v->x + r * v->x_bytes) + at;
            const uint8_t *code[4];
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++) {
                code[c] = byte_place(v, j + c, at, is_paired);
                nan[c] |= is_e4m3 ? nan_codes(code[c], left) : 0;
                prefetch_codes(v, code[c]);
            }
#pragma GCC unroll 4
            for (int q = 0; q < 64; q += 16) {
                if (q > 0 && left <= q)
                    break;
                const __mmask16 lanes = lanes_of(left - q);
                vf value[4];
#pragma GCC unroll 4
                for (int c = 0; c < columns; c++)
                    value[c] = byte_values(code[c] + q, lanes, values);
#pragma GCC unroll 4
                for (int i = 0; i < rows; i++) {
                    const vf y =
                        v_load((const float *)(const void *)((const char *)x + i * v->x_bytes) + q);
#pragma GCC unroll 4
                    for (int c = 0; c < columns; c++)
                        sum[i][c] = v_fma(value[c], y, sum[i][c]);
                }
            }
        }
        at = end;
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) {
            const vf by = v_set(v->scales[(j + c) * v->stride + g] * unit);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                acc[i][c] = v_fma(sum[i][c], by, acc[i][c]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            store_lanes(v, r + i, j + c, nan[c] != 0 ? v_set(NAN) : acc[i][c]);
}

CPU_INLINE void add_byte_rows(const sum_view *v, int64_t r, int rows, int columns, int values,
                              int is_paired)
{
    int64_t j = 0;
    for (; j + columns <= v->n; j += columns)
        byte_tile(v, r, j, rows, columns, values, is_paired);
    for (; j < v->n; j++)
        byte_tile(v, r, j, rows, 1, values, is_paired);
}

#define BYTES_OF(values, is_paired)                                                                \
    static void add_bytes_##values##_##is_paired(const sum_view *v, int64_t rows)                  \
    {                                                                                              \
        int64_t r = 0;                                                                             \
        for (; r + 4 <= rows; r += 4)                                                              \
            add_byte_rows(v, r, 4, 2, LATHE_VALUES_##values, is_paired);                           \
        for (; r + 2 <= rows; r += 2)                                                              \
            add_byte_rows(v, r, 2, 4, LATHE_VALUES_##values, is_paired);                           \
        for (; r < rows; r++)                                                                      \
            add_byte_rows(v, r, 1, 4, LATHE_VALUES_##values, is_paired);                           \
    }
BYTES_OF(U8, 0)
BYTES_OF(I8, 0)
BYTES_OF(E4M3, 0)
BYTES_OF(U8, 1)

#endif

#endif

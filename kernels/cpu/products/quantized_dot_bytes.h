/* Sums with codes of eight bits that lie row by row: widened to f32 and multiplied with x in f32,
 * which an FMA reads from memory. */
#ifndef LATHE_CPU_QUANTIZED_DOT_BYTES_H
#define LATHE_CPU_QUANTIZED_DOT_BYTES_H

#include <math.h>

#include "products/quantized_dot_part.h"

#if MULTIPLIES_BF16

/* The values of 32 bytes, of which the first n are codes; the others give zeros. E4M3, except NaN,
 * is f16 with one more bit of the exponent: shifted there it is 2^-8 of its value, which the scale
 * makes up. */
CPU_INLINE void byte_values(const uint8_t *p, int64_t n, int values, vf out[2])
{
    const __mmask32 lanes = n >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1;
    const __m256i codes = _mm256_maskz_loadu_epi8(lanes, p);
    if (values == LATHE_VALUES_E4M3) {
        const __m512i shifted = _mm512_slli_epi16(_mm512_cvtepi8_epi16(codes), 7);
        const __m512i halves = _mm512_and_si512(shifted, _mm512_set1_epi16((int16_t)0xbf80));
        out[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
        out[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
        return;
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const __m128i half = _mm_maskz_loadu_epi8((__mmask16)(lanes >> 16 * h), p + 16 * h);
        out[h] = _mm512_cvtepi32_ps(values == LATHE_VALUES_U8 ? _mm512_cvtepu8_epi32(half)
                                                              : _mm512_cvtepi8_epi32(half));
    }
}

/* most, or the larger magnitudes of the first n <= 64 codes of E4M3: 0x7f is NaN. */
CPU_INLINE __m512i larger_codes(__m512i most, const uint8_t *p, int64_t n)
{
    const __mmask64 lanes = n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
    return _mm512_max_epu8(
        most, _mm512_and_si512(_mm512_maskz_loadu_epi8(lanes, p), _mm512_set1_epi8(0x7f)));
}

/* Where the 64 columns from `at` on lie in row j of the part. */
CPU_INLINE const uint8_t *byte_place(const dot_part *v, int64_t j, int64_t at, int is_paired)
{
    return is_paired ? v->codes + j / 2 * 2 * v->row_bytes + j % 2 * 64 + 2 * at
                     : v->codes + j * v->row_bytes + at;
}

/* Adds the first n <= 64 columns from `at` on. most: the largest magnitudes of E4M3 codes so far.
 */
CPU_INLINE void byte_step(const dot_part *v, int64_t r, int64_t j, int64_t at, int64_t n,
                          vf (*sum)[4], __m512i *most, int rows, int columns, int values,
                          int is_paired)
{
    const char *const x = v->x + r * v->x_bytes + at * (int64_t)sizeof(float);
    const uint8_t *code[4];
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) {
        code[c] = byte_place(v, j + c, at, is_paired);
        if (values == LATHE_VALUES_E4M3)
            most[c] = larger_codes(most[c], code[c], n);
        prefetch_codes(v, code[c]);
    }
#pragma GCC unroll 2
    for (int q = 0; q < 64; q += 32) {
        vf value[4][2];
        if (q > 0 && n <= q)
            break;
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            byte_values(code[c] + q, n - q, values, value[c]);
#pragma GCC unroll 8
        for (int t = 0; t < 2 * rows; t++) {
            const vf y =
                v_load((const float *)(const void *)(x + t / 2 * v->x_bytes) + q + t % 2 * VL);
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++)
                sum[t / 2][c] = v_fma(value[c][t % 2], y, sum[t / 2][c]);
        }
    }
}

CPU_INLINE void byte_tile(const dot_part *v, int64_t r, int64_t j, int rows, int columns,
                          int values, int is_paired)
{
    const float unit = values == LATHE_VALUES_E4M3 ? 256.0f : 1.0f;
    vf acc[4][4];
    __m512i most[4];
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++)
        most[c] = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int t = 0; t < rows * columns; t++)
        acc[t / columns][t % columns] = v_zero();
    for (int64_t g = 0, at = 0; g < v->groups; g++) {
        const int64_t end = (g + 1) * v->group < v->cols ? (g + 1) * v->group : v->cols;
        vf sum[4][4];
#pragma GCC unroll 16
        for (int t = 0; t < rows * columns; t++)
            sum[t / columns][t % columns] = v_zero();
        for (; at + 64 <= end; at += 64)
            byte_step(v, r, j, at, 64, sum, most, rows, columns, values, is_paired);
        if (at < end)
            byte_step(v, r, j, at, end - at, sum, most, rows, columns, values, is_paired);
        at = end;
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) {
            const vf by = v_set(v->scales[(j + c) * v->stride + g] * unit);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
                acc[i][c] = v_fma(sum[i][c], by, acc[i][c]);
        }
    }
#pragma GCC unroll 16
    for (int t = 0; t < rows * columns; t++) {
        const int i = t / columns, c = t % columns;
        const __mmask64 nan = _mm512_cmpeq_epi8_mask(most[c], _mm512_set1_epi8(0x7f));
        store_lanes(v, r + i, j + c, nan != 0 ? v_set(NAN) : acc[i][c]);
    }
}

CPU_INLINE void add_byte_rows(const dot_part *v, int64_t r, int rows, int columns, int values,
                              int is_paired)
{
    int64_t j = 0;
    for (; j + columns <= v->n; j += columns)
        byte_tile(v, r, j, rows, columns, values, is_paired);
    for (; j < v->n; j++)
        byte_tile(v, r, j, rows, 1, values, is_paired);
}

#define BYTES_OF(values, is_paired)                                                                \
    static void add_bytes_##values##_##is_paired(const dot_part *v, int64_t rows)                  \
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

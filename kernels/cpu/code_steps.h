/* Products with codes of four bits that are not decoded: a permute selects each element's value
 * from the 16 of its group, in the register that is then multiplied. For AVX-512; the order of sums
 * is that of row_steps.h. */
#ifndef LATHE_CPU_CODE_STEPS_H
#define LATHE_CPU_CODE_STEPS_H

#include "lathe/packed.h"
#include "row_steps.h"

/* Codes, values and rows of a, and the vectors of their sums. */
typedef struct code_view {
    const uint8_t *codes; /* [columns], row_bytes apart */
    const float *values;  /* [columns][groups][LATHE_CODE_VALUES] */
    const char *a;        /* [rows], a_bytes apart; the part's first column */
    float *sums;          /* [rows][sum_columns][VL] */
    int64_t row_bytes, a_bytes, sum_columns, groups, group_steps;
    int32_t shift;
    int32_t is_first; /* the sums begin at 0 */
} code_view;

/* Bytes of the codes of one step. */
CPU_INLINE int64_t code_bytes(int layout)
{
    return layout == LATHE_CODES_BYTES ? STEP : STEP / 2;
}

/* Whether codes can be multiplied in this dtype: with instructions for bf16, weights are bf16. */
CPU_INLINE int multiplies_codes(int32_t dtype)
{
    return VL == 16 && a_bytes_of(dtype) == 4;
}

#if VL == 16
/* 16 codes of two in a byte. */
CPU_INLINE __m512i codes_in_order(const uint8_t *p, __m512i shifts)
{
    int32_t low, high;
    memcpy(&low, p, sizeof low);
    memcpy(&high, p + 4, sizeof high);
    return _mm512_srlv_epi32(_mm512_mask_set1_epi32(_mm512_set1_epi32(low), 0xff00, high), shifts);
}

/* The values of one step, as load_step gives elements of the dtype. */
CPU_INLINE void load_codes(const uint8_t *p, vf values, int32_t shift, int layout, vf *x, vf *y,
                           int32_t dtype)
{
    const __m128i by = _mm_cvtsi32_si128(shift);
    __m512i first, second;
    if (layout == LATHE_CODES_BYTES && dtype == LATHE_BF16) {
        const __m512i pairs =
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
        first = _mm512_srl_epi32(pairs, by);
        second = _mm512_srl_epi32(pairs, _mm_cvtsi32_si128(shift + 8));
    } else if (layout == LATHE_CODES_BYTES) {
        const __m128i *const v = (const __m128i *)(const void *)p;
        first = _mm512_srl_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(v)), by);
        second = _mm512_srl_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(v + 1)), by);
    } else if (dtype == LATHE_BF16) {
        const __m512i pairs =
            _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
        const __m512i high = _mm512_srli_epi32(pairs, 4);
        first = layout == LATHE_CODES_HIGH_FIRST ? high : pairs;
        second = layout == LATHE_CODES_HIGH_FIRST ? pairs : high;
    } else {
        const int flip = layout == LATHE_CODES_HIGH_FIRST ? 4 : 0;
        const __m512i shifts = _mm512_xor_si512(
            _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28),
            _mm512_set1_epi32(flip));
        first = codes_in_order(p, shifts);
        second = codes_in_order(p + 8, shifts);
    }
    *x = _mm512_permutexvar_ps(first, values);
    *y = _mm512_permutexvar_ps(second, values);
}
#endif

/* Adds the products of rows [r, r + rows) of a and columns [j, j + columns). */
CPU_INLINE void add_codes(const code_view *v, int64_t r, int64_t j, int rows, int columns,
                          int layout, int32_t dtype)
{
#if VL == 16
    const uint8_t *codes = v->codes + j * v->row_bytes;
    const float *values = v->values + j * v->groups * LATHE_CODE_VALUES;
    const char *a = v->a + r * v->a_bytes;
    float *const sums = v->sums + (r * v->sum_columns + j) * VL;
    vf acc[8][4];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            acc[i][c] = v->is_first ? v_zero() : v_load(sums + (i * v->sum_columns + c) * VL);
    for (int64_t g = 0; g < v->groups; g++, values += LATHE_CODE_VALUES) {
        vf table[4];
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            table[c] = v_load(values + c * v->groups * LATHE_CODE_VALUES);
        for (int64_t s = 0; s < v->group_steps; s++) {
            vf x[2][4];
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++)
                load_codes(codes + c * v->row_bytes, table[c], v->shift, layout, &x[0][c], &x[1][c],
                           dtype);
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++)
#pragma GCC unroll 8
                for (int i = 0; i < rows; i++) {
                    const vf y =
                        v_load((const float *)(const void *)(a + i * v->a_bytes) + half * VL);
#pragma GCC unroll 4
                    for (int c = 0; c < columns; c++)
                        acc[i][c] = v_fma(x[half][c], y, acc[i][c]);
                }
            codes += code_bytes(layout);
            a += STEP * a_bytes_of(dtype);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            v_store(sums + (i * v->sum_columns + c) * VL, acc[i][c]);
#else
    (void)v, (void)r, (void)j, (void)rows, (void)columns, (void)layout, (void)dtype;
#endif
}

/* The same for rows [r, r + rows) and all of n columns. */
CPU_INLINE void add_code_rows(const code_view *v, int64_t r, int64_t n, int rows, int columns,
                              int layout, int32_t dtype)
{
    int64_t j = 0;
    for (; j + columns <= n; j += columns)
        add_codes(v, r, j, rows, columns, layout, dtype);
    for (; j < n; j++)
        add_codes(v, r, j, rows, 1, layout, dtype);
}

/* The same for all `rows` rows of a. */
CPU_INLINE void add_code_part(const code_view *v, int64_t rows, int64_t n, int layout,
                              int32_t dtype)
{
    int64_t r = 0;
    for (; rows - r >= 8; r += 8)
        add_code_rows(v, r, n, 8, 2, layout, dtype);
    if (rows - r >= 4) {
        add_code_rows(v, r, n, 4, 2, layout, dtype);
        r += 4;
    }
    if (rows - r >= 2) {
        add_code_rows(v, r, n, 2, 4, layout, dtype);
        r += 2;
    }
    if (r < rows)
        add_code_rows(v, r, n, 1, 4, layout, dtype);
}

#endif

/* Sums with codes of at most four bits that lie row by row: two of a row in a byte, or one of each
 * run of rows. 64 bytes of codes are a step; a shift brings each code to the low bits of 16. */
#ifndef LATHE_CPU_QUANTIZED_DOT_ROWS_H
#define LATHE_CPU_QUANTIZED_DOT_ROWS_H

#include "products/quantized_dot_part.h"

#if MULTIPLIES_BF16

/* ---- two codes in a byte: 128 columns in a step ---- */

/* Rows [r, r + rows) of x with rows [j, j + columns) of the part. per_step: groups in a step. */
CPU_INLINE void nibble_tile(const dot_part *v, int64_t r, int64_t j, int rows, int columns,
                            int per_step)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i first = _mm512_srlv_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32(per_step)),
                                            _mm512_set1_epi32(4));
    const int64_t words = v->cols / 8, steps = (words + 15) / 16;
    const uint8_t *const codes = v->codes + j * v->row_bytes;
    const float *const scales = v->scales + j * v->stride;
    const char *x = v->x + r * v->x_bytes;
    vf acc[4][4];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            acc[i][c] = v_zero();
    for (int64_t s = 0; s < steps;) {
        const int64_t end = s + 16 / per_step < steps ? s + 16 / per_step : steps;
        vf scale[4];
        __m512i at = first;
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            scale[c] = v_load(scales + c * v->stride + s * per_step);
        for (; s < end; s++, x += 256) {
            __m512i code[4];
            vf sum[4][4];
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++)
                code[c] = load_words(codes + c * v->row_bytes + s * 64, words - s * 16);
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++)
                prefetch_codes(v, codes + c * v->row_bytes + s * 64);
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++)
#pragma GCC unroll 4
                for (int c = 0; c < columns; c++) {
                    const __m512i value = values_of(v, _mm512_srli_epi32(code[c], 4 * (unsigned)k));
#pragma GCC unroll 4
                    for (int i = 0; i < rows; i++)
                        sum[i][c] = add_pairs(k == 0 ? v_zero() : sum[i][c], value,
                                              _mm512_loadu_si512(x + i * v->x_bytes + 64 * k));
                }
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++) {
                const vf by = _mm512_permutexvar_ps(at, scale[c]);
#pragma GCC unroll 4
                for (int i = 0; i < rows; i++)
                    acc[i][c] = v_fma(sum[i][c], by, acc[i][c]);
            }
            at = _mm512_add_epi32(at, _mm512_set1_epi32(per_step));
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            store_lanes(v, r + i, j + c, acc[i][c]);
}

/* Rows [r, r + rows) of x with all rows of the part. */
#define NIBBLE_ROWS_OF(rows, columns, per_step)                                                    \
    static __attribute__((noinline)) void nibble_rows_##rows##_##per_step(const dot_part *v,       \
                                                                          int64_t r)               \
    {                                                                                              \
        int64_t j = 0;                                                                             \
        for (; j + columns <= v->n; j += columns)                                                  \
            nibble_tile(v, r, j, rows, columns, per_step);                                         \
        for (; j < v->n; j++)                                                                      \
            nibble_tile(v, r, j, rows, 1, per_step);                                               \
    }
#define NIBBLES_OF(per_step)                                                                       \
    NIBBLE_ROWS_OF(1, 4, per_step)                                                                 \
    NIBBLE_ROWS_OF(2, 3, per_step)                                                                 \
    NIBBLE_ROWS_OF(4, 2, per_step)                                                                 \
    static void add_nibbles_##per_step(const dot_part *v, int64_t rows)                            \
    {                                                                                              \
        int64_t r = 0;                                                                             \
        for (; r + 4 <= rows; r += 4)                                                              \
            nibble_rows_4_##per_step(v, r);                                                        \
        for (; r + 2 <= rows; r += 2)                                                              \
            nibble_rows_2_##per_step(v, r);                                                        \
        for (; r < rows; r++)                                                                      \
            nibble_rows_1_##per_step(v, r);                                                        \
    }
NIBBLES_OF(1)
NIBBLES_OF(2)
NIBBLES_OF(4)
NIBBLES_OF(8)

/* ---- a code of each run in a byte: 64 columns of all runs in a step ---- */

/* The scales of the two halves of the lanes of a step. is_split: its columns are of two groups. */
CPU_INLINE vf scale_of_step(const dot_part *v, int64_t row, int64_t s, int is_split)
{
    const float *const from =
        v->scales + row * v->stride + (is_split ? 2 * s : s >> v->steps_of_group);
    return is_split ? _mm512_mask_mov_ps(v_set(from[0]), 0xff00, v_set(from[1])) : v_set(from[0]);
}

/* Rows [r, r + rows) of x with rows j of each run. */
CPU_INLINE void run_tile(const dot_part *v, int64_t r, int64_t j, int rows, int columns, int bits,
                         int is_split)
{
    enum { MOST = 8 };
    const int runs = 8 / bits;
    const int64_t words = v->cols / 4, steps = (words + 15) / 16;
    const uint8_t *const codes = v->codes + j * v->row_bytes;
    const char *x = v->x + r * v->x_bytes;
    vf acc[2][2][MOST];
#pragma GCC unroll 8
    for (int t = 0; t < rows * columns * runs; t++)
        acc[t / runs / columns][t / runs % columns][t % runs] = v_zero();
    for (int64_t s = 0; s < steps; s++, x += 128) {
#pragma GCC unroll 2
        for (int c = 0; c < columns; c++) {
            const uint8_t *const from = codes + c * v->row_bytes + s * 64;
            const __m512i code = load_words(from, words - s * 16);
            vf sum[2][MOST];
            prefetch_codes(v, from);
#pragma GCC unroll 16
            for (int k = 0; k < 2 * runs; k++) {
                const __m512i value = values_of(v, _mm512_srli_epi32(code, (unsigned)(bits * k)));
#pragma GCC unroll 2
                for (int i = 0; i < rows; i++) {
                    vf *const of = &sum[i][runs - 1 - k % runs];
                    *of = add_pairs(k < runs ? v_zero() : *of, value,
                                    _mm512_loadu_si512(x + i * v->x_bytes + 64 * (k / runs)));
                }
            }
#pragma GCC unroll 8
            for (int k = 0; k < runs; k++) {
                const vf by = scale_of_step(v, k * v->n + j + c, s, is_split);
#pragma GCC unroll 2
                for (int i = 0; i < rows; i++)
                    acc[i][c][k] = v_fma(sum[i][k], by, acc[i][c][k]);
            }
        }
    }
#pragma GCC unroll 2
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int c = 0; c < columns; c++)
#pragma GCC unroll 8
            for (int k = 0; k < runs; k++)
                store_lanes(v, r + i, k * v->n + j + c, acc[i][c][k]);
}

/* columns: rows of a run at a time. */
#define RUNS_OF(bits, columns, is_split)                                                           \
    static void add_runs_##bits##_##is_split(const dot_part *v, int64_t rows)                      \
    {                                                                                              \
        int64_t r = 0;                                                                             \
        for (; r + 2 <= rows; r += 2)                                                              \
            for (int64_t j = 0; j < v->n; j++)                                                     \
                run_tile(v, r, j, 2, 1, bits, is_split);                                           \
        for (int64_t j = 0; r < rows && j < v->n;) {                                               \
            if (j + columns <= v->n) {                                                             \
                run_tile(v, r, j, 1, columns, bits, is_split);                                     \
                j += columns;                                                                      \
            } else {                                                                               \
                run_tile(v, r, j++, 1, 1, bits, is_split);                                         \
            }                                                                                      \
        }                                                                                          \
    }
RUNS_OF(4, 2, 0)
RUNS_OF(4, 2, 1)
RUNS_OF(2, 2, 0)
RUNS_OF(2, 2, 1)
RUNS_OF(1, 1, 0)
RUNS_OF(1, 1, 1)

#endif

#endif

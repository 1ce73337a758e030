/* Products with codes of four bits that are not decoded. Each group of inputs has a table of 16
 * values; one permute looks up 16 codes in it, and the result is multiplied at once, so that no
 * decoded weight is written to memory. A step is STEP inputs of one column (an output of the
 * weight), in the order of sums of dot_steps.h. For AVX-512. */
#ifndef LATHE_CPU_LOOKUP_DOT_H
#define LATHE_CPU_LOOKUP_DOT_H

#include "lathe/packed.h"
#include "products/dot_steps.h"

/* A part of a weight: its codes, their values, the rows of activations `a`, and the sums. */
typedef struct lookup_part {
    const uint8_t *codes; /* [columns], row_bytes apart */
    const float *values;  /* [columns][groups][LATHE_CODE_VALUES] */
    const char *a;        /* [rows], a_bytes apart; the part's first column */
    float *sums;          /* [rows][sum_columns][VL] */
    int64_t row_bytes, a_bytes, sum_columns, groups, group_steps;
    int32_t shift;
    int32_t is_first; /* the sums begin at 0 */
} lookup_part;

/* Bytes of the codes of one step. */
CPU_INLINE int64_t code_bytes(int layout)
{
    return layout == LATHE_CODES_BYTES ? STEP : STEP / 2;
}

/* Whether this build looks codes up (AVX-512). In bf16 with VDPBF16PS quantized_dot.h multiplies
 * them. */
CPU_INLINE int looks_up(int32_t dtype)
{
    return VL == 16 && !(MULTIPLIES_BF16 && dtype == LATHE_BF16);
}

#if VL == 16
/* ---- values ---- */

CPU_INLINE vf pick(vf t, __m512i codes)
{
    return _mm512_permutexvar_ps(codes, t);
}

/* Lane k of 32 bits gets four of the 16 bytes from p on: two with code k, two with code 16 + k. */
CPU_INLINE __m512i spread_nibbles(const uint8_t *p)
{
    static const uint8_t to[64] = {0, 1, 8,  9,  0, 1, 8,  9,  0, 1, 8,  9,  0, 1, 8,  9,
                                   2, 3, 10, 11, 2, 3, 10, 11, 2, 3, 10, 11, 2, 3, 10, 11,
                                   4, 5, 12, 13, 4, 5, 12, 13, 4, 5, 12, 13, 4, 5, 12, 13,
                                   6, 7, 14, 15, 6, 7, 14, 15, 6, 7, 14, 15, 6, 7, 14, 15};
    const __m512i packed =
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm512_shuffle_epi8(packed, _mm512_loadu_si512(to));
}

/* The values of one step, in the order in which load_step gives elements of the dtype. */
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
        const __m512i shifts =
            _mm512_xor_si512(_mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12),
                             _mm512_set1_epi32(layout == LATHE_CODES_HIGH_FIRST ? 4 : 0));
        first = _mm512_srlv_epi32(spread_nibbles(p), shifts);
        second = _mm512_srli_epi32(first, 16);
    }
    *x = pick(values, first);
    *y = pick(values, second);
}
/* ---- sums ---- */

/* Adds the products of one step of `rows` rows of a and `columns` columns; at: of the codes. */
CPU_INLINE void add_code_step(const lookup_part *v, const uint8_t *const *codes, int64_t at,
                              const vf *table, const char *a, vf (*acc)[4], int rows, int columns,
                              int layout, int32_t dtype)
{
    vf x[2][4];
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++)
        load_codes(codes[c] + at, table[c], v->shift, layout, &x[0][c], &x[1][c], dtype);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++)
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const vf y = v_load((const float *)(const void *)(a + i * v->a_bytes) + half * VL);
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++)
                acc[i][c] = v_fma(x[half][c], y, acc[i][c]);
        }
}

/* Adds the products of rows [r, r + rows) of a and columns [j, j + columns). */
CPU_INLINE void add_codes(const lookup_part *v, int64_t r, int64_t j, int rows, int columns,
                          int layout, int32_t dtype)
{
    const int64_t a_step = STEP * a_bytes_of(dtype), code_step = code_bytes(layout);
    const uint8_t *codes[4];
    const float *values[4];
    const char *a = v->a + r * v->a_bytes;
    float *const sums = v->sums + (r * v->sum_columns + j) * VL;
    vf acc[8][4];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            acc[i][c] = v->is_first ? v_zero() : v_load(sums + (i * v->sum_columns + c) * VL);
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) {
        codes[c] = v->codes + (j + c) * v->row_bytes;
        values[c] = v->values + (j + c) * v->groups * LATHE_CODE_VALUES;
        /* else compilers keep a pointer for each use of these, and the registers do not suffice */
        __asm__("" : "+r"(codes[c]), "+r"(values[c]));
    }
    for (int64_t g = 0, at = 0; g < v->groups * LATHE_CODE_VALUES; g += LATHE_CODE_VALUES) {
        const int64_t end = at + v->group_steps * code_step;
        vf table[4];
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            table[c] = v_load(values[c] + g);
        for (; at + 2 * code_step <= end; at += 2 * code_step, a += 2 * a_step) {
            add_code_step(v, codes, at, table, a, acc, rows, columns, layout, dtype);
            add_code_step(v, codes, at + code_step, table, a + a_step, acc, rows, columns, layout,
                          dtype);
        }
        for (; at < end; at += code_step, a += a_step)
            add_code_step(v, codes, at, table, a, acc, rows, columns, layout, dtype);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            v_store(sums + (i * v->sum_columns + c) * VL, acc[i][c]);
}

/* Adds the products of rows [r, r + rows) and all of n columns, in blocks of `columns`. */
CPU_INLINE void add_code_rows(const lookup_part *v, int64_t r, int64_t n, int rows, int columns,
                              int layout, int32_t dtype)
{
    int64_t j = 0;
    for (; j + columns <= n; j += columns)
        add_codes(v, r, j, rows, columns, layout, dtype);
    for (; j < n; j++)
        add_codes(v, r, j, rows, 1, layout, dtype);
}

/* A function for each number of rows, layout and dtype: inlined into one, the loops of some find no
 * registers for their pointers. */
#define CODE_ROWS_OF(rows, columns, layout, dtype)                                                 \
    static __attribute__((noinline)) void add_code_rows_##rows##_##layout##_##dtype(               \
        const lookup_part *v, int64_t r, int64_t n)                                                \
    {                                                                                              \
        add_code_rows(v, r, n, rows, columns, LATHE_CODES_##layout, LATHE_##dtype);                \
    }
#define CODE_PART_OF(layout, dtype)                                                                \
    CODE_ROWS_OF(8, 2, layout, dtype)                                                              \
    CODE_ROWS_OF(4, 2, layout, dtype)                                                              \
    CODE_ROWS_OF(2, 4, layout, dtype)                                                              \
    CODE_ROWS_OF(1, 4, layout, dtype)                                                              \
    static void add_code_part_##layout##_##dtype(const lookup_part *v, int64_t rows, int64_t n)    \
    {                                                                                              \
        int64_t r = 0;                                                                             \
        for (; rows - r >= 8; r += 8)                                                              \
            add_code_rows_8_##layout##_##dtype(v, r, n);                                           \
        if ((rows & 4) != 0)                                                                       \
            add_code_rows_4_##layout##_##dtype(v, r, n);                                           \
        r += rows & 4;                                                                             \
        if ((rows & 2) != 0)                                                                       \
            add_code_rows_2_##layout##_##dtype(v, r, n);                                           \
        r += rows & 2;                                                                             \
        if ((rows & 1) != 0)                                                                       \
            add_code_rows_1_##layout##_##dtype(v, r, n);                                           \
    }
#if MULTIPLIES_BF16
#define CODE_LAYOUT_OF(layout)                                                                     \
    CODE_PART_OF(layout, F32)                                                                      \
    CODE_PART_OF(layout, F16)
#define BF16_PART(layout) NULL
#else
#define CODE_LAYOUT_OF(layout)                                                                     \
    CODE_PART_OF(layout, F32)                                                                      \
    CODE_PART_OF(layout, F16)                                                                      \
    CODE_PART_OF(layout, BF16)
#define BF16_PART(layout) add_code_part_##layout##_BF16
#endif
CODE_LAYOUT_OF(LOW_FIRST)
CODE_LAYOUT_OF(HIGH_FIRST)
CODE_LAYOUT_OF(BYTES)

/* Adds the products of all `rows` rows of a and n columns. */
static void add_code_part(const lookup_part *v, int64_t rows, int64_t n, int layout, int32_t dtype)
{
    static void (*const parts[3][3])(const lookup_part *v, int64_t rows, int64_t n) = {
        {add_code_part_LOW_FIRST_F32, BF16_PART(LOW_FIRST), add_code_part_LOW_FIRST_F16},
        {add_code_part_HIGH_FIRST_F32, BF16_PART(HIGH_FIRST), add_code_part_HIGH_FIRST_F16},
        {add_code_part_BYTES_F32, BF16_PART(BYTES), add_code_part_BYTES_F16}};
    parts[layout][dtype == LATHE_F32 ? 0 : dtype == LATHE_BF16 ? 1 : 2](v, rows, n);
}

#else
static inline void add_code_part(const lookup_part *v, int64_t rows, int64_t n, int layout,
                                 int32_t dtype)
{
    (void)v, (void)rows, (void)n, (void)layout, (void)dtype;
}
#endif

#endif

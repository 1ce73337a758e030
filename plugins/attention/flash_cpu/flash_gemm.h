/* Products of small packed tiles, by register-blocked outer products.
 *
 * c [m,n] f32, from a (units, element (r,k) at a[r*a_row + k*a_unit]) and b (units, [k][n]). Rows
 * are processed MR at a time; m is a multiple of MR_LEAST, n of VL. Each block of MR rows has its
 * own span, of columns or of units of the contraction; elements outside it are masked and not
 * computed.
 */
#ifndef LATHE_ATTENTION_FLASH_GEMM_H
#define LATHE_ATTENTION_FLASH_GEMM_H

#include "flash_simd.h"

#if FLASH_BF16
typedef uint32_t unit; /* two bf16, the earlier one in the low half */
#define UNIT_VALUES 2
#else
typedef float unit;
#define UNIT_VALUES 1
#endif

/* 12 x 2 accumulators of 32 registers, or 6 x 2 of 16 registers. */
#if defined(__AVX512F__)
#define MR 12
#define MR_LEAST 4
#else
#define MR 6
#define MR_LEAST 2
#endif
#define MR_MIDDLE (2 * MR_LEAST)
#define NV 2

typedef struct span {
    int32_t lo, hi; /* [lo, hi) */
} span;

INLINE vf multiply_add(const unit *a, const unit *b, vf c)
{
#if FLASH_BF16
    const __m512i x = _mm512_set1_epi32((int)*a), y = _mm512_loadu_si512(b);
    return (vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)x, (__m512bh)y);
#else
    return vfma(vset(*a), vload(b), c);
#endif
}

/* Computes rows x (vectors * VL) elements of c over n_k units; `add`: adds them to c. The last four
 * arguments are constants. */
INLINE void micro(const unit *a, int64_t a_row, int64_t a_unit, const unit *b, int64_t b_unit,
                  float *c, int64_t c_row, int64_t n_k, const int rows, const int vectors,
                  const int add)
{
    vf acc[MR][NV];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            acc[r][v] = add ? vload(c + r * c_row + v * VL) : vset(0.0f);
    for (int64_t k = 0; k < n_k; k++) {
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                acc[r][v] = multiply_add(a + r * a_row, b + v * VL, acc[r][v]);
        a += a_unit;
        b += b_unit;
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            vstore(c + r * c_row + v * VL, acc[r][v]);
}

/* Left factors have one of two layouts; a constant step becomes part of the address
 * instructions. */
#define MICRO(name, rows, vectors, add)                                                            \
    static __attribute__((noinline)) void name(const unit *a, int64_t a_row, int64_t a_unit,       \
                                               const unit *b, int64_t b_unit, float *c,            \
                                               int64_t c_row, int64_t n_k)                         \
    {                                                                                              \
        if (a_row == 1)                                                                            \
            micro(a, 1, a_unit, b, b_unit, c, c_row, n_k, rows, vectors, add);                     \
        else                                                                                       \
            micro(a, a_row, 1, b, b_unit, c, c_row, n_k, rows, vectors, add);                      \
    }

MICRO(put_full_2, MR, 2, 0)
MICRO(put_full_1, MR, 1, 0)
MICRO(put_middle_2, MR_MIDDLE, 2, 0)
MICRO(put_middle_1, MR_MIDDLE, 1, 0)
MICRO(put_least_2, MR_LEAST, 2, 0)
MICRO(put_least_1, MR_LEAST, 1, 0)
MICRO(add_full_2, MR, 2, 1)
MICRO(add_full_1, MR, 1, 1)
MICRO(add_middle_2, MR_MIDDLE, 2, 1)
MICRO(add_middle_1, MR_MIDDLE, 1, 1)
MICRO(add_least_2, MR_LEAST, 2, 1)
MICRO(add_least_1, MR_LEAST, 1, 1)

typedef void (*micro_fn)(const unit *a, int64_t a_row, int64_t a_unit, const unit *b,
                         int64_t b_unit, float *c, int64_t c_row, int64_t n_k);

INLINE micro_fn micro_for(int64_t rows, int64_t columns, int add)
{
    static const micro_fn table[2][2][3] = {
        {{put_least_1, put_middle_1, put_full_1}, {put_least_2, put_middle_2, put_full_2}},
        {{add_least_1, add_middle_1, add_full_1}, {add_least_2, add_middle_2, add_full_2}}};
    return table[add][columns >= 2 * VL][rows >= MR ? 2 : rows >= MR_MIDDLE ? 1 : 0];
}

/** c = a b, for the panels of columns in each block's span. a: rows form. */
static void multiply_columns(const unit *a, int64_t a_row, const unit *b, float *c, int64_t m,
                             int64_t n, int64_t n_k, const span *columns)
{
    for (int64_t j = 0; j < n; j += NV * VL)
        for (int64_t r = 0; r < m; r += MR) {
            const span s = columns[r / MR];
            if (s.lo >= j + NV * VL || s.hi <= j || s.lo >= s.hi)
                continue;
            micro_for(m - r, n - j, 0)(a + r * a_row, a_row, 1, b + j, n, c + r * n + j, n, n_k);
        }
}

/** c += a b, where each block contracts over its own span of units. */
static void multiply_add_units(const unit *a, int64_t a_row, int64_t a_unit, const unit *b,
                               float *c, int64_t m, int64_t n, const span *units)
{
    for (int64_t j = 0; j < n; j += NV * VL)
        for (int64_t r = 0; r < m; r += MR) {
            const span s = units[r / MR];
            if (s.lo < s.hi)
                micro_for(m - r, n - j, 1)(a + r * a_row + s.lo * a_unit, a_row, a_unit,
                                           b + s.lo * n + j, n, c + r * n + j, n, s.hi - s.lo);
        }
}

#endif

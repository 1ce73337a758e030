/* The part of a weight that the loops of quantized_dot.c multiply, and the ends of their sums. */
#ifndef LATHE_CPU_QUANTIZED_DOT_PART_H
#define LATHE_CPU_QUANTIZED_DOT_PART_H

#include "lathe/packed.h"
#include "products/dot_steps.h"

#if MULTIPLIES_BF16

typedef struct dot_part {
    const uint8_t *codes; /* of the part's first row, or of the columns that are multiplied now */
    int64_t row_bytes;    /* from one row of codes to the next; of words: from one input's */
    int64_t ahead;        /* bytes from codes to those that are prefetched meanwhile */
    int64_t n, cols;      /* rows of the part in a run; columns */
    int64_t group, groups;
    int32_t steps_of_group;        /* codes of runs: log2 of the steps of 64 columns in a group */
    const float *scales, *offsets; /* offsets: NULL for none */
    int64_t stride;                /* from one row of these to the next */
    const char *x;                 /* [rows], x_bytes apart, in the product's layout */
    int64_t x_bytes;
    const float *x_sums; /* [rows], x_stride apart: over groups */
    int64_t x_stride;
    float *sums; /* [rows][columns] */
    int64_t columns;
    __m512i table; /* bf16 values of the codes, repeated */
} dot_part;

/* sum + value * x, of pairs in bf16. */
CPU_INLINE vf add_pairs(vf sum, __m512i value, __m512i x)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)value, (__m512bh)x);
}

/* The values of the codes in the low bits of each 16, above which any bits may be. */
CPU_INLINE __m512i values_of(const dot_part *v, __m512i codes)
{
    return _mm512_permutexvar_epi16(codes, v->table);
}

/* Rows are read by turns, which the hardware's prefetching does not follow. */
CPU_INLINE void prefetch_codes(const dot_part *v, const uint8_t *codes)
{
    _mm_prefetch((const char *)codes + v->ahead, _MM_HINT_T0);
}

/* 16 words, or the first n < 16 and zeros. Loads with a mask are slow on processors of AMD. */
CPU_INLINE __m512i load_words(const uint8_t *p, int64_t n)
{
    if (n >= 16)
        return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1u), p);
}

/* Stores the sum of row `row` of the part with row r of x, whose lanes are not added up yet. */
CPU_INLINE void store_lanes(const dot_part *v, int64_t r, int64_t row, vf sum)
{
    if (v->offsets != NULL)
        for (int64_t g = 0; g < v->x_stride; g += VL)
            sum = v_fma(v_load(v->offsets + row * v->stride + g),
                        v_load(v->x_sums + r * v->x_stride + g), sum);
    v->sums[r * v->columns + row] = v_sum(sum);
}

#endif

#endif

/* Packs tensors of the model into tiles of units, and writes f32 sums back to tensors. */
#ifndef LATHE_ATTENTION_FLASH_PACK_H
#define LATHE_ATTENTION_FLASH_PACK_H

#include "flash_gemm.h"

#include "lathe/attention.h"

__extension__ typedef _Float16 half;

/* Queries and keys of a tile: multiples of MR, so that a full tile has no slow remainder of rows,
 * and of 2 VL, the width of a panel of columns. */
#define BQ 96
#define BK 96
#define BQ_UNITS (BQ / UNIT_VALUES)
#define BK_UNITS (BK / UNIT_VALUES)

/* The sizes that follow from a head size D: that of q and k, or that of v and o. */
typedef struct extent {
    int64_t d;     /* D */
    int64_t units; /* over D: the contraction of q k^T, and of do v^T */
    int64_t row;   /* units from one row of the rows form to the next: a multiple of VL */
    int64_t wide;  /* D rounded up to VL: columns of the cols form and of f32 sums */
} extent;

INLINE int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

INLINE extent extent_of(int64_t d)
{
    extent x;
    x.d = d;
    x.units = (x.d + UNIT_VALUES - 1) / UNIT_VALUES;
    x.row = round_up(x.units, VL);
    x.wide = round_up(x.d, VL);
    return x;
}

/* Loads n values from element `at` of a tensor, as f32. */
static void load_values(float *dst, const void *src, int64_t at, int64_t n, int32_t dtype)
{
    if (dtype == LATHE_F32) {
        memcpy(dst, (const float *)src + at, (size_t)n * sizeof(float));
    } else if (dtype == LATHE_BF16) {
        const uint16_t *from = (const uint16_t *)src + at;
        for (int64_t i = 0; i < n; i++)
            dst[i] = lathe_bf16_to_f32(from[i]);
    } else {
        const half *from = (const half *)src + at;
        for (int64_t i = 0; i < n; i++)
            dst[i] = (float)from[i];
    }
}

/* Packs `count` rows of a head into the rows form, with zeros up to `rows` rows and x->row
 * units. */
static void pack_rows(unit *dst, const extent *x, const void *src, int64_t at, int64_t stride,
                      int64_t count, int64_t rows, int32_t dtype)
{
    for (int64_t t = 0; t < count; t++) {
        unit *row = dst + t * x->row;
#if FLASH_BF16
        (void)dtype;
        memcpy(row, (const uint16_t *)src + at + t * stride, (size_t)x->d * 2);
        memset((uint16_t *)row + x->d, 0, (size_t)(2 * x->row - x->d) * 2);
#else
        load_values(row, src, at + t * stride, x->d, dtype);
        for (int64_t d = x->d; d < x->row; d++)
            row[d] = 0.0f;
#endif
    }
    memset(dst + count * x->row, 0, (size_t)((rows - count) * x->row) * sizeof(unit));
}

/* Converts `tokens` rows (a multiple of VL) of the rows form to the turned form
 * [x->row][tokens]. */
static void pack_turned(unit *dst, const extent *x, const unit *rows, int64_t tokens)
{
    for (int64_t t = 0; t < tokens; t += VL)
        for (int64_t d = 0; d < x->row; d += VL) {
            vu block[VL];
            for (int i = 0; i < VL; i++)
                block[i] = *(const vu_any *)(rows + (t + i) * x->row + d);
            vtranspose(block);
            for (int i = 0; i < VL; i++)
                *(vu_any *)(dst + (d + i) * tokens + t) = block[i];
        }
}

#if FLASH_BF16
/* Converts the rows form to the cols form: unit (t/2, d) is the pair of tokens t and t+1 at d. */
static void pack_cols(unit *dst, const extent *x, const unit *rows, int64_t tokens)
{
    for (int64_t t = 0; t < tokens; t += 2) {
        const uint16_t *even = (const uint16_t *)(rows + t * x->row);
        const uint16_t *odd = (const uint16_t *)(rows + (t + 1) * x->row);
        for (int64_t d = 0; d < x->wide; d++)
            dst[t / 2 * x->wide + d] = (uint32_t)even[d] | (uint32_t)odd[d] << 16;
    }
}
#endif

/* Writes `count` rows of sums times `factor` to a head of a tensor; with `add`, adds them. */
static void unpack(void *dst, int64_t at, int64_t stride, const float *src, const extent *x,
                   int64_t count, float factor, int32_t dtype, uint32_t add)
{
    for (int64_t t = 0; t < count; t++) {
        const float *row = src + t * x->wide;
        float sum[64];
        for (int64_t first = 0; first < x->d; first += 64) {
            const int64_t n = x->d - first < 64 ? x->d - first : 64;
            const int64_t to = at + t * stride + first;
            if (add)
                load_values(sum, dst, to, n, dtype);
            for (int64_t i = 0; i < n; i++)
                sum[i] = row[first + i] * factor + (add ? sum[i] : 0.0f);
            if (dtype == LATHE_F32)
                memcpy((float *)dst + to, sum, (size_t)n * sizeof(float));
            else if (dtype == LATHE_BF16)
                for (int64_t i = 0; i < n; i++)
                    ((uint16_t *)dst)[to + i] = lathe_f32_to_bf16(sum[i]);
            else
                for (int64_t i = 0; i < n; i++)
                    ((half *)dst)[to + i] = (half)sum[i];
        }
    }
}

#endif

/* The shape and type of a dense, row-major tensor. Memory travels separately, as plain pointers. */
#ifndef LATHE_TENSOR_H
#define LATHE_TENSOR_H

#include "dtype.h"

#define LATHE_MAX_RANK 4

/** Dense row-major tensor: dims[0] is the slowest. rank 0 is a scalar (one element). Plain data. */
typedef struct lathe_desc {
    int32_t dtype;
    int32_t rank;
    int64_t dims[LATHE_MAX_RANK]; /* unused dims are 1 */
} lathe_desc;
LATHE_ABI_SIZE(lathe_desc, 40);

/** Product of the dims (1 for a scalar). */
static inline int64_t lathe_desc_count(const lathe_desc *d)
{
    int64_t n = 1;
    for (int32_t i = 0; i < d->rank; i++)
        n *= d->dims[i];
    return n;
}

/** Bytes of the tensor. */
static inline int64_t lathe_desc_bytes(const lathe_desc *d)
{
    return lathe_desc_count(d) * lathe_dtype_bytes(d->dtype);
}

static inline lathe_desc lathe_desc_1d(int32_t dtype, int64_t n)
{
    const lathe_desc d = {dtype, 1, {n, 1, 1, 1}};
    return d;
}

static inline lathe_desc lathe_desc_2d(int32_t dtype, int64_t rows, int64_t cols)
{
    const lathe_desc d = {dtype, 2, {rows, cols, 1, 1}};
    return d;
}

#endif

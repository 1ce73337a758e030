/* Reductions of several ranks' elements in the order of ranks. */
#ifndef LATHE_COLLECTIVES_REDUCE_H
#define LATHE_COLLECTIVES_REDUCE_H

#include "lathe/collective.h"

/** out[i] = ((x[0][i] + x[1][i]) + x[2][i]) + ..., or the largest or smallest of them.
 *
 *  x      [n_ranks] arrays of n elements of dtype
 *  out    [n] may be one of x
 *  dtype, reduce   LATHE_F32 ..., LATHE_REDUCE_*
 *
 *  bf16 and f16 are added in f32 and rounded once. Spread over the process's threads; the bits do
 *  not depend on their number. Allocates nothing. */
void lathe__reduce(const lathe_host *host, int32_t dtype, int32_t reduce, const void *const *x,
                   int32_t n_ranks, int64_t n, void *out);

#endif

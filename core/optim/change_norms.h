/* Computes the norms of an update and of the updated values: sums of squares in double, added in an
 * order that depends only on the length. */
#ifndef LATHE_OPTIM_CHANGE_NORMS_H
#define LATHE_OPTIM_CHANGE_NORMS_H

#include <stdint.h>

/** out[0] = sum (x[i] - was[i])^2, out[1] = sum x[i]^2, by the calling thread. */
void lathe__squares_of_change(const float *x, const float *was, int64_t n, double out[2]);

#endif

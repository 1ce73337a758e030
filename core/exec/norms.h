/* Sums of squares in double, in an order that depends on the length only. */
#ifndef LATHE_EXEC_NORMS_H
#define LATHE_EXEC_NORMS_H

#include <stdint.h>

/** sum x[i]^2 of n floats, by the calling thread. */
double lathe__squares(const float *x, int64_t n);
/** The same of n bf16 numbers. */
double lathe__squares_bf16(const uint16_t *x, int64_t n);

/** out[0] = sum (x[i] - was[i])^2, out[1] = sum x[i]^2, by the calling thread. */
void lathe__squares_of_change(const float *x, const float *was, int64_t n, double out[2]);

#endif

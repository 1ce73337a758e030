/* Measures how long a matrix product takes on the device. */
#ifndef LATHE_EXEC_PRODUCT_TIME_H
#define LATHE_EXEC_PRODUCT_TIME_H

#include "exec/store/machine.h"

/** y [m,n] = x [m,k] w [n,k]' */
typedef struct lathe_product_shape {
    int64_t m, n, k;
} lathe_product_shape;

/** Measures a LINEAR of this shape in `dtype` (fp8: LATHE_FP8_*, the recipe): *out_best is the
 * shortest time in seconds of up to twelve runs. It is 0, and nothing was measured, if `room` bytes
 * of device memory are not enough or the device has fewer free. */
lathe_status lathe_product_time(lathe_machine *m, int32_t dtype, int32_t fp8,
                                const lathe_product_shape *s, int64_t room, double *out_best);

#endif

/* Measures how long a matrix product takes on the device. */
#ifndef LATHE_EXEC_PRODUCT_TIME_H
#define LATHE_EXEC_PRODUCT_TIME_H

#include "store/machine.h"

/** y [m,n] = x [m,k] w [n,k]' */
typedef struct lathe_product_shape {
    int64_t m, n, k;
} lathe_product_shape;

/** Seconds of a LINEAR of this shape in `dtype` (fp8: LATHE_FP8_*, the recipe), the shortest of up
 *  to twelve runs. *out_best is 0 if `room` bytes of device memory are not enough; then nothing was
 *  measured. */
lathe_status lathe_product_time(lathe_machine *m, int32_t dtype, int32_t fp8,
                                const lathe_product_shape *s, int64_t room, double *out_best);

#endif

/* The highest rates of a device, measured between the steps of a run: large product and copy. */
#ifndef LATHE_BENCH_DEVICE_RATES_H
#define LATHE_BENCH_DEVICE_RATES_H

#include "exec/store/machine.h"

typedef struct device_rates {
    lathe_machine *m;
    char *memory; /* borrowed between steps, overwritten */
    int64_t bytes;
    int32_t dtype;
    int64_t n; /* products are [2n,n] x [n,n] */
    lathe_kernel *kernel;
    int64_t x_bytes, w_bytes, scratch_bytes;
    void *values; /* random values on the device, to fill operands with */
    lathe_event *begin, *end;
} device_rates;

/** Prepares products in `dtype` within `bytes` of device memory. n doubles from 32 until a product
 *  takes 2 ms or more, n is 8192, or the next n does not fit. */
lathe_status device_rates_open(lathe_machine *m, int32_t dtype, void *memory, int64_t bytes,
                               device_rates *out);
void device_rates_close(device_rates *r);

typedef lathe_status (*device_rates_fn)(void *arg);

/** Device seconds for one call of `once`: after two calls as warm-up, queues as many calls as take
 *  about `seconds` (at most 1000), without waiting between them. */
lathe_status device_rates_time(device_rates *r, device_rates_fn once, void *arg, double seconds,
                               double *out);

/** Fills device memory with the operands' random values. */
lathe_status device_rates_fill(const device_rates *r, void *to, int64_t bytes);

/** FLOP/s of products for about `seconds`. The operands are approximately normally distributed
 * around 0, because their values determine the power that the multipliers draw, and so the clock.
 */
lathe_status device_rates_product(device_rates *r, double seconds, double *out);

/** Bytes/s, read and written, of copies within the device's memory. */
lathe_status device_rates_copy(device_rates *r, double seconds, double *out);

#endif

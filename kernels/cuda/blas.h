/* Matrix products by cuBLASLt: the only place that knows its API. The library is opened when a
 * device is, so that the plugin loads on machines without it. */
#ifndef LATHE_CUDA_BLAS_H
#define LATHE_CUDA_BLAS_H

#include "cuda.h"
#include "matmul_spec.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Whether cuBLASLt can be opened; else `why` gets one line. */
int32_t cuda_blas_found(char *why, int64_t why_bytes);
lathe_status cuda_blas_create(const lathe_host *host, int32_t tf32, cuda_blas **out);
/** Takes NULL. */
void cuda_blas_destroy(const lathe_host *host, cuda_blas *blas);

typedef struct cuda_product cuda_product;

/** Chooses and pins an algorithm for `spec`: one for operands that are 16-byte aligned, one for
 * others. Algorithms that add partial sums in no fixed order, or in fewer bits than f32, are not
 * considered. *out_scratch is what a run needs. LATHE_E_UNSUPPORTED: there is none for these
 * dtypes. */
lathe_status cuda_product_create(cuda_device *device, const matmul_spec *spec, cuda_product **out,
                                 int64_t *out_scratch);
/** Whether cuda_product_create would find one. */
int32_t cuda_product_offered(cuda_device *device, const matmul_spec *spec);
/** Takes NULL. */
void cuda_product_destroy(cuda_device *device, cuda_product *p);
/** Whether a run adds the bias of `spec`: the library can where the result is f32. Else it is the
 * caller's. */
int32_t cuda_product_adds_bias(const cuda_product *p);
/** Of a spec with fp8 set: the result of runs from here on is times a and b, of device memory: for
 * TENSORWISE f32[1] each, for ROWWISE f32[m] and f32[n]. */
lathe_status cuda_product_scale(cuda_device *device, cuda_product *p, const float *a,
                                const float *b);
/** Queues it; `scratch` holds *out_scratch bytes. `bias`: f32[n] where the product adds it, else
 * NULL. */
lathe_status cuda_product_run(cuda_device *device, cuda_product *p, const void *a, const void *b,
                              const void *bias, void *c, void *scratch, int32_t accumulate,
                              lathe_stream *stream);

#ifdef __cplusplus
}
#endif

#endif

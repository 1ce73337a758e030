/* Matrix products by cuBLASLt: the only files that use its API. The library is opened together with
 * a device, so the plugin also loads on machines without it. */
#ifndef LATHE_CUDA_BLAS_H
#define LATHE_CUDA_BLAS_H

#include "base/cuda.h"
#include "shared/matmul_spec.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Whether cuBLASLt can be opened; if not, `why` gets one line. */
int32_t cuda_blas_found(char *why, int64_t why_bytes);
lathe_status cuda_blas_create(const lathe_host *host, int32_t tf32, cuda_blas **out);
/** Frees it; NULL is fine. */
void cuda_blas_destroy(const lathe_host *host, cuda_blas *blas);

typedef struct cuda_product cuda_product;

/** Chooses one algorithm for operands that are 16-byte aligned and one for others, and keeps them
 *  for all runs. Algorithms that add partial sums in no fixed order or store them in 16 bits are
 *  excluded. A run needs *out_scratch bytes. LATHE_E_UNSUPPORTED: cuBLASLt has no algorithm for
 *  these dtypes. */
lathe_status cuda_product_create(cuda_device *device, const matmul_spec *spec, cuda_product **out,
                                 int64_t *out_scratch);
/** Whether cuda_product_create would find an algorithm. */
int32_t cuda_product_offered(cuda_device *device, const matmul_spec *spec);
/** Frees a product; NULL is fine. */
void cuda_product_destroy(cuda_device *device, cuda_product *p);
/** Whether a run adds the bias of `spec`, which the library can do if the result is f32. If not,
 *  the caller has to add it. */
int32_t cuda_product_adds_bias(const cuda_product *p);
/** For a spec with fp8 set: later runs multiply the result by a and b, in device memory: f32[1]
 *  each for TENSORWISE, f32[m] and f32[n] for ROWWISE. */
lathe_status cuda_product_scale(cuda_device *device, cuda_product *p, const float *a,
                                const float *b);
/** Queues the product; `scratch` has *out_scratch bytes. `bias`: f32[n] if the product adds it,
 *  else NULL. */
lathe_status cuda_product_run(cuda_device *device, cuda_product *p, const void *a, const void *b,
                              const void *bias, void *c, void *scratch, int32_t accumulate,
                              lathe_stream *stream);

#ifdef __cplusplus
}
#endif

#endif

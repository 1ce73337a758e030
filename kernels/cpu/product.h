/* A matrix product of compute dtypes on any build, by oneDNN or by our own kernels. */
#ifndef LATHE_CPU_PRODUCT_H
#define LATHE_CPU_PRODUCT_H

#include "onednn.h"

typedef struct cpu_product cpu_product;

/** Prepares the product that `spec` describes. Each run needs *out_scratch bytes of scratch. */
lathe_status cpu_product_create(cpu_device *device, const matmul_spec *spec, cpu_product **out,
                                int64_t *out_scratch);
/** Frees a product; NULL is fine. */
void cpu_product_destroy(cpu_device *device, cpu_product *p);
lathe_status cpu_product_run(cpu_device *device, cpu_product *p, const void *a, const void *b,
                             const void *bias, void *c, void *scratch, int accumulate);

/** dst[i] (= or +=) src[i], converted to dst_dtype (f32, bf16 or f16), on all threads of the
 *  pool. */
void cpu_convert(const lathe_host *host, void *dst, int32_t dst_dtype, const void *src,
                 int32_t src_dtype, int64_t n, int accumulate);

/** out[j] (= or +=) sum over i of dy[i,j], in f32: partial sums of CPU_COLSUM_ROWS rows, added in
 *  order. scratch: cpu_colsum_scratch(rows, cols) bytes. */
int64_t cpu_colsum_scratch(int64_t rows, int64_t cols);
void cpu_colsum(const lathe_host *host, const void *dy, int32_t dtype, int64_t rows, int64_t cols,
                float *out, int accumulate, void *scratch);

/** out[j] (= or +=) sum of partials[c,j] over c, in order. */
void cpu_add_partials(const lathe_host *host, const float *partials, int64_t n_partials,
                      int64_t cols, float *out, int accumulate);

#endif

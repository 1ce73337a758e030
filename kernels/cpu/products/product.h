/* A matrix product of compute dtypes on any build, by oneDNN or by our own kernels. */
#ifndef LATHE_CPU_PRODUCT_H
#define LATHE_CPU_PRODUCT_H

#include "products/onednn.h"

typedef struct cpu_product cpu_product;

/** Prepares the product that `spec` describes. Each run needs *out_scratch bytes of scratch. */
lathe_status cpu_product_create(cpu_device *device, const matmul_spec *spec, cpu_product **out,
                                int64_t *out_scratch);
/** Frees a product; NULL is fine. */
void cpu_product_destroy(cpu_device *device, cpu_product *p);
lathe_status cpu_product_run(cpu_device *device, cpu_product *p, const void *a, const void *b,
                             const void *bias, void *c, void *scratch, int accumulate);

#endif

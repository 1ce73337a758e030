/* Products of bf16 operands in fp8 (lathe/fp8.h): the reference for those of the CUDA device. */
#ifndef LATHE_CPU_FP8_GEMM_H
#define LATHE_CPU_FP8_GEMM_H

#include "products/product.h"

typedef struct cpu_fp8_product cpu_fp8_product;

/** Prepares the product of `spec`, whose fp8 is set. Each run needs *out_scratch bytes of
 *  scratch. */
lathe_status cpu_fp8_product_create(cpu_device *device, const matmul_spec *spec,
                                    cpu_fp8_product **out, int64_t *out_scratch);
/** Frees a product; NULL is fine. */
void cpu_fp8_product_destroy(cpu_device *device, cpu_fp8_product *p);
lathe_status cpu_fp8_product_run(cpu_device *device, cpu_fp8_product *p, const void *a,
                                 const void *b, const float *bias, void *c, void *scratch,
                                 int accumulate);

#endif

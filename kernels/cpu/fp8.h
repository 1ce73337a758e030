/* Products of bf16 operands in fp8 (lathe/fp8.h): the twin that the CUDA device's are compared
 * with. */
#ifndef LATHE_CPU_FP8_H
#define LATHE_CPU_FP8_H

#include "product.h"

typedef struct cpu_fp8_product cpu_fp8_product;

/** The product of `spec`, whose fp8 is set; *out_scratch bytes are needed by each run. */
lathe_status cpu_fp8_product_create(cpu_device *device, const matmul_spec *spec,
                                    cpu_fp8_product **out, int64_t *out_scratch);
/** Takes NULL. */
void cpu_fp8_product_destroy(cpu_device *device, cpu_fp8_product *p);
lathe_status cpu_fp8_product_run(cpu_device *device, cpu_fp8_product *p, const void *a,
                                 const void *b, const float *bias, void *c, void *scratch,
                                 int accumulate);

#endif

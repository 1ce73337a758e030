/* Matrix products whose right operand is a packed weight: never more of it is decoded at a time
 * than a part for each worker. */
#ifndef LATHE_CPU_QUANTIZED_PRODUCT_H
#define LATHE_CPU_QUANTIZED_PRODUCT_H

#include "lathe/packed.h"
#include "products/product.h"

typedef struct cpu_quantized cpu_quantized;

/** Prepares the product that `spec` describes, without trans_a; b, of dtype b_dtype when decoded,
 * is W [n,k] with trans_b, or W [k,n]. Each run needs *out_scratch bytes of scratch. */
lathe_status cpu_quantized_create(cpu_device *device, const matmul_spec *spec,
                                  const lathe_packed_weight *weight, cpu_quantized **out,
                                  int64_t *out_scratch);
/** Frees a product; NULL is fine. */
void cpu_quantized_destroy(cpu_device *device, cpu_quantized *p);
/** planes: as an input of dtype LATHE_PLANES (lathe/packed.h). Products that cpu_gemv_serves takes
 *  have the bits of the decoded weight's; others may differ in the last bits, by the order in which
 *  oneDNN adds for another width. */
lathe_status cpu_quantized_run(cpu_device *device, cpu_quantized *p, const void *a,
                               const void *const *planes, const float *bias, void *c, void *scratch,
                               int accumulate);

#endif

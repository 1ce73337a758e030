/* Matrix products by oneDNN (2.x and 3.x). Of this floor only onednn.h and onednn.c use its API.
 *
 * The caller provides all memory that a running product needs: operands, result and scratch. oneDNN
 * also keeps a few hundred bytes per call, and its gemm (prefer_gemm) packs through a buffer of its
 * own, about 1.2 MB per worker in 2.6, which the caller cannot supply.
 */
#ifndef LATHE_CPU_ONEDNN_H
#define LATHE_CPU_ONEDNN_H

#include "base/cpu.h"
#include "shared/matmul_spec.h"

lathe_status cpu_onednn_create(const lathe_host *host, cpu_onednn **out);
void cpu_onednn_destroy(const lathe_host *host, cpu_onednn *o);

typedef struct cpu_matmul cpu_matmul;

/** Sets *out to NULL and returns LATHE_OK if oneDNN has no optimised product for these dtypes
 *  here. */
lathe_status cpu_matmul_create(cpu_device *device, const matmul_spec *spec, cpu_matmul **out,
                               int64_t *out_scratch);
void cpu_matmul_destroy(cpu_device *device, cpu_matmul *mm);
lathe_status cpu_matmul_run(cpu_device *device, cpu_matmul *mm, const void *a, const void *b,
                            const void *bias, void *c, void *scratch, int accumulate);

#endif

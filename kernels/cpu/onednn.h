/* Matrix products by oneDNN: the only place that knows its API (2.x and 3.x).
 *
 * All memory a product needs while running is the caller's: operands, result and scratch. Beyond it
 * oneDNN keeps a few hundred bytes per call, and its gemm (prefer_gemm) packs through a buffer of
 * its own, about 1.2 MB per worker in 2.6, that no call can hand it.
 */
#ifndef LATHE_CPU_ONEDNN_H
#define LATHE_CPU_ONEDNN_H

#include "cpu.h"

lathe_status cpu_onednn_create(const lathe_host *host, cpu_onednn **out);
void cpu_onednn_destroy(const lathe_host *host, cpu_onednn *o);

/** c[m,n] (= or +=) alpha * op(a) op(b) + bias; everything dense and row-major.
 *  a is [m,k], with trans_a [k,m]; b is [k,n], with trans_b [n,k]. dtypes: f32, bf16 or f16. */
typedef struct cpu_matmul_spec {
    int64_t m, n, k;
    int32_t a_dtype, b_dtype, c_dtype;
    int32_t trans_a, trans_b;
    int32_t bias; /* f32[n] is added */
    int32_t may_overwrite, may_accumulate;
    int32_t prefer_gemm; /* oneDNN's gemm, where it offers one, before its first choice */
    double alpha;
} cpu_matmul_spec;

typedef struct cpu_matmul cpu_matmul;

/** *out is NULL with LATHE_OK when oneDNN has no optimised product for these dtypes here. */
lathe_status cpu_matmul_create(cpu_device *device, const cpu_matmul_spec *spec, cpu_matmul **out,
                               int64_t *out_scratch);
void cpu_matmul_destroy(cpu_device *device, cpu_matmul *mm);
lathe_status cpu_matmul_run(cpu_device *device, cpu_matmul *mm, const void *a, const void *b,
                            const void *bias, void *c, void *scratch, int accumulate);

#endif

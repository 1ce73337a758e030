/* Matrix products that widen their operands to f32 while packing them: for 16-bit dtypes for which
 * oneDNN has no fast product on this processor. */
#ifndef LATHE_CPU_PACKED_GEMM_H
#define LATHE_CPU_PACKED_GEMM_H

#include "base/cpu.h"
#include "shared/matmul_spec.h"

/** How a product is cut into blocks; depends on its dims and the number of workers. */
typedef struct cpu_packed_gemm {
    matmul_spec spec;
    int32_t a_whole; /* 1: a is packed before the product, b where it is used; 0: the reverse */
    int64_t kc, n_k; /* elements of a sum that are packed at a time, and the number of such parts */
    int64_t mc, n_m; /* rows of c in a task */
    int64_t nc, n_n; /* columns of c whose b is packed at a time */
    int64_t slice;   /* columns of c in a task */
    int32_t n_workers; /* number of workers that the scratch is made for */
    int64_t worker_at; /* offset in scratch, after the operand that is packed whole */
    int64_t part_at;   /* offset in a worker's scratch, after the other operand's part */
    int64_t worker_bytes;
} cpu_packed_gemm;

/** Fills *out for any dtypes, transpositions, bias and alpha. cpu_packed_gemm_run needs
 * *out_scratch bytes. */
void cpu_packed_gemm_init(const matmul_spec *spec, int32_t n_workers, cpu_packed_gemm *out,
                          int64_t *out_scratch);

/** Bytes of scratch with which every product runs that differs from `most` in having fewer rows m
 * or fewer terms k. */
int64_t cpu_packed_gemm_bound(const matmul_spec *most, int32_t n_workers);

/** c[m,n] (= or +=) alpha * op(a) op(b) + bias. Sums are f32 and are rounded to c's dtype once.
 *  Their order depends only on k and the build, so the result does not depend on the number of
 *  workers. LATHE_E_STATE: the pool has more workers than *p was made for. */
lathe_status cpu_packed_gemm_run(const lathe_host *host, const cpu_packed_gemm *p, const void *a,
                                 const void *b, const float *bias, void *c, void *scratch,
                                 int accumulate);

#endif

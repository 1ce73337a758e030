/* Products of a few rows with a transposed weight, as in decoding. */
#ifndef LATHE_CPU_GEMV_H
#define LATHE_CPU_GEMV_H

#include "base/cpu.h"
#include "shared/matmul_spec.h"

/** Number of rows of `a` up to which this is the fastest product. */
#define CPU_GEMV_MOST 8

/** Whether cpu_gemv_run can compute this product: b transposed, and at most CPU_GEMV_MOST rows of
 *  `a` unless spec->invariant asks for it. */
int cpu_gemv_serves(const matmul_spec *spec);
/** Bytes of scratch that cpu_gemv_run needs. */
int64_t cpu_gemv_scratch(const matmul_spec *spec);

/** c[m,n] (= or +=) alpha * a[m,k] b[n,k]^T + bias. Reads the weights in their own dtype and widens
 *  them in registers, or multiplies them as they are where the processor does. Sums are f32; their
 *  order depends only on k, the dtype and the build: neither on the number of workers nor on m. */
void cpu_gemv_run(const lathe_host *host, const matmul_spec *spec, const void *a, const void *b,
                  const float *bias, void *c, void *scratch, int accumulate);

/** The m rows of `a` as the kernels read them, *out_bytes apart: widened to f32 in the order in
 * which widening in registers yields the weight's elements, and padded with zeros to whole steps; a
 * copy in scratch [cpu_gemv_scratch] if need be. */
const char *cpu_gemv_ready(const lathe_host *host, const matmul_spec *spec, const void *a,
                           void *scratch, int64_t *out_bytes);

#define CPU_GEMV_JOINED 3 /* maximum products at a time */

/** One of several products of one `a`, which differ only in n, b, bias and c. */
typedef struct cpu_gemv_product {
    const matmul_spec *spec;
    const void *b;
    const float *bias; /* NULL: none */
    void *c;
} cpu_gemv_product;

/** Runs n <= CPU_GEMV_JOINED products as cpu_gemv_run would, but in one parallel loop. They share
 * the scratch of one product. */
void cpu_gemv_run_joined(const lathe_host *host, const cpu_gemv_product *products, int32_t n,
                         const void *a, void *scratch);

#endif

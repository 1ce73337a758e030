/* Products of a few rows with a weight that lies row by row: what decoding a token multiplies. */
#ifndef LATHE_CPU_ROWS_H
#define LATHE_CPU_ROWS_H

#include "cpu.h"
#include "matmul_spec.h"

/** Most rows of `a` for which reading the weight decides the time. */
#define CPU_ROWS_MOST 8

/** Whether cpu_rows_run computes this product: a of at most CPU_ROWS_MOST rows, b transposed. */
int cpu_rows_serves(const matmul_spec *spec);
/** Bytes of scratch that cpu_rows_run needs. */
int64_t cpu_rows_scratch(const matmul_spec *spec);

/** c[m,n] (= or +=) alpha * a[m,k] b[n,k]^T + bias. Each weight is read once for four rows of `a`,
 * in its own dtype, and widened in registers; sums are f32. The order of every sum depends on k,
 * the dtype and the build alone, so the result does not depend on the number of workers. */
void cpu_rows_run(const lathe_host *host, const matmul_spec *spec, const void *a, const void *b,
                  const float *bias, void *c, void *scratch, int accumulate);

#endif

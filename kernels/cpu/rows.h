/* Products of a few rows with a transposed weight, as in decoding. */
#ifndef LATHE_CPU_ROWS_H
#define LATHE_CPU_ROWS_H

#include "cpu.h"
#include "matmul_spec.h"

/** Maximum number of rows of `a` for which reading the weight takes most of the time. */
#define CPU_ROWS_MOST 8

/** Whether cpu_rows_run can compute this product: at most CPU_ROWS_MOST rows of a, b transposed. */
int cpu_rows_serves(const matmul_spec *spec);
/** Bytes of scratch that cpu_rows_run needs. */
int64_t cpu_rows_scratch(const matmul_spec *spec);

/** c[m,n] (= or +=) alpha * a[m,k] b[n,k]^T + bias. Reads each weight once per four rows of `a`, in
 *  its own dtype, and widens it in registers. Sums are f32; their order depends only on k, the
 *  dtype and the build, so the result does not depend on the number of workers. */
void cpu_rows_run(const lathe_host *host, const matmul_spec *spec, const void *a, const void *b,
                  const float *bias, void *c, void *scratch, int accumulate);

#endif

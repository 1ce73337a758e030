/* Column sums with a fixed order of additions, for the gradients of biases and norm weights. */
#ifndef LATHE_CPU_COLUMN_SUMS_H
#define LATHE_CPU_COLUMN_SUMS_H

#include "base/cpu.h"

/** out[j] (= or +=) sum over i of dy[i,j], in f32: partial sums of 64 or more rows, added in
 *  order. scratch: cpu_column_sums_scratch(rows, cols) bytes. */
int64_t cpu_column_sums_scratch(int64_t rows, int64_t cols);
void cpu_column_sums(const lathe_host *host, const void *dy, int32_t dtype, int64_t rows,
                     int64_t cols, float *out, int accumulate, void *scratch);

/** out[j] (= or +=) sum of partials[c,j] over c, in order. */
void cpu_add_partials(const lathe_host *host, const float *partials, int64_t n_partials,
                      int64_t cols, float *out, int accumulate);

#endif

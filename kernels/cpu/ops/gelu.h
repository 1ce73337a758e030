/* GELU_TANH and its derivative over n elements of one dtype, on all threads of the pool. */
#ifndef LATHE_CPU_GELU_H
#define LATHE_CPU_GELU_H

#include "base/cpu.h"

/** y = gelu(x); y may be x. */
void cpu_gelu(const lathe_host *host, const void *x, void *y, int32_t dtype, int64_t n);
/** dx (= or +=) dy * gelu'(x); without accumulation dx may be dy. */
void cpu_gelu_bwd(const lathe_host *host, const void *dy, const void *x, void *dx, int32_t dtype,
                  int64_t n, int accumulate);

#endif

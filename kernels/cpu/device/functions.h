/* The functions of the CPU device's table that have files of their own. */
#ifndef LATHE_CPU_FUNCTIONS_H
#define LATHE_CPU_FUNCTIONS_H

#include "base/cpu.h"

/** Fitness of this build for this machine; the processor's brand string (48 bytes and a zero). */
int32_t cpu_score(char *why, int64_t why_bytes);
void cpu_brand(char out[64]);

lathe_status cpu_kernel_create(void *self, const lathe_kernel_problem *problem, lathe_kernel **out,
                               int64_t *out_scratch_bytes);
void cpu_kernel_destroy(void *self, lathe_kernel *kernel);
lathe_status cpu_kernel_run(void *self, lathe_kernel *kernel, const lathe_kernel_args *args);

#endif

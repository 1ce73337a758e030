/* Whether this machine has what a GPU is opened with. */
#ifndef LATHE_CUDA_MACHINE_H
#define LATHE_CUDA_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/** Whether there are a driver that is new enough, GPUs (*out_n) and cuBLASLt; else `why` gets one
 * line. */
int32_t cuda_machine_runs(int *out_n, char *why, size_t why_bytes);

#endif

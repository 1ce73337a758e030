/* Checks whether this machine has what the CUDA device needs. */
#ifndef LATHE_CUDA_REQUIREMENTS_H
#define LATHE_CUDA_REQUIREMENTS_H

#include <stddef.h>
#include <stdint.h>

/** Whether there is a new enough driver, at least one GPU (*out_n) and cuBLASLt; if not, `why` gets
 *  one line. */
int32_t cuda_machine_runs(int *out_n, char *why, size_t why_bytes);

#endif

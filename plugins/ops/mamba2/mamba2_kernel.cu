/* Mamba-2 on GPUs. */
#include "shared/scan_cuda.h"

SCAN_CUDA_KERNELS(mamba2)

/* The gated delta rule on GPUs. */
#include "shared/scan_cuda.h"

SCAN_CUDA_KERNELS(gated_delta)

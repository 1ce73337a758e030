/* The gated delta rule, compiled for AVX2 and FMA (x86-64-v3). */
#define DELTA_KERNELS delta_avx2
#include "delta_cpu.h"

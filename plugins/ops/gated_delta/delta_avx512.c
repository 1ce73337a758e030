/* The gated delta rule, compiled for AVX-512 (x86-64-v4). */
#define DELTA_KERNELS delta_avx512
#include "delta_cpu.h"

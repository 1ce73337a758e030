/* Linear attention with a decaying state, compiled for AVX2 and FMA (x86-64-v3). */
#define SCAN_KERNELS scan_avx2
#include "scan_cpu.h"

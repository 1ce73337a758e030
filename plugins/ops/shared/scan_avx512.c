/* Linear attention with a decaying state, compiled for AVX-512 (x86-64-v4). */
#define SCAN_KERNELS scan_avx512
#include "scan_cpu.h"

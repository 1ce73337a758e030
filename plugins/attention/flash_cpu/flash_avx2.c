/* The flash kernels, compiled for AVX2 (x86-64-v3). */
#define FLASH_VARIANT flash_avx2
#define FLASH_NAME "avx2"
#include "flash_kernels.h"

/* The flash kernels, compiled for AVX-512 (x86-64-v4). */
#define FLASH_VARIANT flash_avx512
#define FLASH_NAME "avx512"
#include "flash_kernels.h"

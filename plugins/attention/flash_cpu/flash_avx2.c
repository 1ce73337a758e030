/* The flash kernels for x86-64-v3. */
#define FLASH_VARIANT flash_avx2
#define FLASH_NAME "avx2"
#include "flash_kernels.h"

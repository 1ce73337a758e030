/* The flash kernels, compiled for any machine: four-wide vectors, separate multiply and add. */
#define FLASH_VARIANT flash_generic
#define FLASH_NAME "generic"
#include "flash_kernels.h"

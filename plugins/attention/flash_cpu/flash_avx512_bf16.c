/* The flash kernels for x86-64-v4 with bf16 dot products: pairs of bf16 are multiplied and added to
 * f32; probabilities and their gradients are rounded to bf16 before they are multiplied. */
#define FLASH_VARIANT flash_avx512_bf16
#define FLASH_NAME "avx512_bf16"
#define FLASH_BF16 1
#include "flash_kernels.h"

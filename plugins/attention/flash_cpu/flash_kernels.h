/* The code of the flash kernels. Each flash_<variant>.c includes it once and is compiled with flags
 * for its instruction set.
 *
 * A unit is what one multiply-add uses of the contracted dimension: one f32, or a pair of bf16
 * (FLASH_BF16). Tensors are repacked, tile by tile, into one of three forms of units:
 *
 *   rows   [token][units over D]    left factors that contract over D (q, do); source of the rest
 *   turned [units over D][token]    right factors that contract over D (k, v)
 *   cols   [units over tokens][D]   right factors that contract over tokens (v, k, do, q)
 *
 * In f32, rows and cols are the same memory.
 */
#ifndef FLASH_BF16
#define FLASH_BF16 0
#endif

#include "flash.h"

#include "flash_simd.h"

#include "flash_gemm.h"
#include "flash_pack.h"
#include "flash_tiles.h"

#include "flash_decode.h"
#include "flash_forward.h"

#include "flash_alone.h"
#include "flash_backward.h"

static int64_t any_forward_scratch(const lathe_attention_problem *p, int32_t workers)
{
    return is_alone(p) ? alone_scratch(p, workers) : forward_scratch(p, workers);
}

static void any_forward(const flash_call *c)
{
    if (is_alone(c->p))
        attend_alone(c);
    else
        forward(c);
}

const flash_variant FLASH_VARIANT = {
    .name = FLASH_NAME,
    .forward_scratch = any_forward_scratch,
    .backward_scratch = backward_scratch,
    .forward = any_forward,
    .backward = backward,
};

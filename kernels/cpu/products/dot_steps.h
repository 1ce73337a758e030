/* The steps in which gemv.c and quantized_gemv.c add up a sum: STEP elements of a row of the weight
 * and of a row of `a`, which lies as cpu_gemv_ready says. */
#ifndef LATHE_CPU_DOT_STEPS_H
#define LATHE_CPU_DOT_STEPS_H

#include "base/simd.h"

#define STEP (2 * VL) /* elements of a weight row that are processed at a time */

/* Whether bf16 elements are multiplied as they are. */
#define MULTIPLIES_BF16 (LATHE_CPU_ISA == 3)

CPU_INLINE int64_t bytes_of(int32_t dtype)
{
    return dtype == LATHE_F32 ? 4 : 2;
}

/* Bytes of an element of a row of `a`, as the kernels read it. */
CPU_INLINE int64_t a_bytes_of(int32_t dtype)
{
    return MULTIPLIES_BF16 && dtype == LATHE_BF16 ? 2 : 4;
}

CPU_INLINE void load_step(const void *p, vf *x, vf *y, int32_t dtype)
{
    if (dtype == LATHE_BF16) {
        v_widen_pairs(p, x, y);
    } else if (dtype == LATHE_F16) {
        *x = v_widen(p, LATHE_F16);
        *y = v_widen((const uint16_t *)p + VL, LATHE_F16);
    } else {
        *x = v_load(p);
        *y = v_load((const float *)p + VL);
    }
}

/* Returns sum + the products of one step's elements of a row of the weight and a row of a. */
CPU_INLINE vf add_step(vf sum, const char *b, const char *a, int32_t dtype)
{
#if MULTIPLIES_BF16
    if (dtype == LATHE_BF16)
        return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_loadu_si512(b),
                                (__m512bh)_mm512_loadu_si512(a));
#endif
    vf x, y;
    const float *const f = (const float *)(const void *)a;
    load_step(b, &x, &y, dtype);
    return v_fma(y, v_load(f + VL), v_fma(x, v_load(f), sum));
}

#endif

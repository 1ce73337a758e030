/* Vectors of VL floats and their functions, for the instruction set of the including file. */
#ifndef LATHE_ATTENTION_FLASH_SIMD_H
#define LATHE_ATTENTION_FLASH_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "lathe/dtype.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VL 16
#elif defined(__AVX2__)
#define VL 8
#else
#define VL 4
#endif

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));
typedef float vf_any __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef uint32_t vu_any __attribute__((vector_size(VL * 4), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vf vload(const float *p)
{
    return *(const vf_any *)p;
}

INLINE void vstore(float *p, vf x)
{
    *(vf_any *)p = x;
}

INLINE vf vset(float x)
{
#if defined(__AVX512F__)
    return _mm512_set1_ps(x);
#elif defined(__AVX2__)
    return _mm256_set1_ps(x);
#else
    return (vf){x, x, x, x};
#endif
}

/* a * b + c, rounded once if the machine has FMA. */
INLINE vf vfma(vf a, vf b, vf c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

/* mask ? a : b, lane by lane; mask lanes are 0 or -1. */
INLINE vf vselect(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

INLINE vf vmax(vf a, vf b)
{
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    return vselect(a > b, a, b);
#endif
}

/* Whether a > b in any lane. */
INLINE int vany_greater(vf a, vf b)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0;
#else
    const vi m = a > b;
    return (m[0] | m[1] | m[2] | m[3]) != 0;
#endif
}

INLINE float vsum(vf x)
{
    float s = x[0]; /* in lane order */
    for (int i = 1; i < VL; i++)
        s += x[i];
    return s;
}

INLINE float vmost(vf x)
{
    float s = x[0];
    for (int i = 1; i < VL; i++)
        s = x[i] > s ? x[i] : s;
    return s;
}

/* Lanes whose index, base + lane, is in [lo, hi). */
INLINE vi vinside(int32_t base, int32_t lo, int32_t hi)
{
    vi index;
    for (int i = 0; i < VL; i++)
        index[i] = base + i;
    return (index >= lo) & (index < hi);
}

/** 2^x for x <= 127: relative error below 2.1e-7 (3.5 units of 2^-24); results below 2^-126 become
 *  0 or 2^-126. x = n + f with |f| <= 1/2, and 2^f by a minimax polynomial of degree 5. */
INLINE vf vexp2(vf x)
{
#if defined(__AVX512F__)
    const vf n = _mm512_roundscale_ps(x, 8);
    const vf f = x - n;
#else
    const vf magic = vset(0x1.8p23f);    /* adding it puts round(x) into the low bits */
    const vf t = vmax(vset(-126.0f), x); /* in this order NaN stays NaN */
    const vf r = t + magic;
    const vf f = t - (r - magic);
#endif
    vf p = vset(0x1.5c08e4p-10f);
    p = vfma(p, f, vset(0x1.3d0c52p-7f));
    p = vfma(p, f, vset(0x1.c6b6e4p-5f));
    p = vfma(p, f, vset(0x1.ebf918p-3f));
    p = vfma(p, f, vset(0x1.62e428p-1f));
    p = vfma(p, f, vset(0x1.000002p+0f));
#if defined(__AVX512F__)
    return _mm512_scalef_ps(p, n);
#else
    /* overflows for masked scores, whose result is discarded; the NaN of inf - inf stays one */
    return (vf)((vu)p + ((vu)r << 23));
#endif
}

/** tanh x: relative error below 1e-6. Small |x| by x + x^3 P(x^2), the rest by 1 - 2/(e^2|x| + 1).
 */
INLINE vf vtanh(vf x)
{
    const vi sign = (vi)x & (vi)vset(-0.0f);
    const vf a = (vf)((vi)x & ~(vi)vset(-0.0f)), z = x * x;
    vf p = vset(-0.005704986316181561f);
    p = vfma(p, z, vset(0.020639086557205394f));
    p = vfma(p, z, vset(-0.05373971484207917f));
    p = vfma(p, z, vset(0.13331442194698093f));
    p = vfma(p, z, vset(-0.333332819418515f));
    const vf small = vfma(x * z, p, x);
    const vf b = vselect(a < vset(20.0f), a, vset(20.0f));
    const vf e = vexp2(b * vset(2.88539008f)); /* 2 log2 e */
    const vf large = vset(1.0f) - vset(2.0f) / (e + vset(1.0f));
    return vselect(a < vset(0.625f), small, (vf)((vi)large | sign));
}

/* Transposes VL x VL elements in place, by log2(VL) perfect shuffles. */
INLINE void vtranspose(vu x[VL])
{
    vi low, high;
    for (int i = 0; i < VL; i++) {
        low[i] = i / 2 + (i % 2) * VL;
        high[i] = VL / 2 + i / 2 + (i % 2) * VL;
    }
    for (int step = 1; step < VL; step *= 2) {
        vu y[VL];
#pragma GCC unroll 16
        for (int i = 0; i < VL / 2; i++) {
            y[2 * i] = __builtin_shuffle(x[i], x[i + VL / 2], low);
            y[2 * i + 1] = __builtin_shuffle(x[i], x[i + VL / 2], high);
        }
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++)
            x[i] = y[i];
    }
}

#endif

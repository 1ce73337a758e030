/* exp, tanh, sigmoid and the normal distribution in plain C that the compiler can vectorise. Our
 * code: Cody-Waite range reduction and, for exp and tanh, the classic minimax polynomials for
 * single precision.
 *
 * Largest errors against libm's double over the tested ranges (tests/kernels/test_cpu_vecmath.c):
 *   cpu_exp     2 ulp in [-87.33, 88.72]; 0 for smaller x, +inf for larger x, NaN for NaN
 *               (cpu_exp_clamped is the same within [-87, 88])
 *   cpu_tanh    3 ulp
 *   cpu_sigmoid 4 ulp for x >= -87.33, 0 below
 *   cpu_normal  6 ulp for x >= -1, 12 ulp down to -5, 70 ulp down to -12.9; 0 below -13
 */
#ifndef LATHE_CPU_VECMATH_H
#define LATHE_CPU_VECMATH_H

#include "base/element.h"

CPU_INLINE float cpu_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

CPU_INLINE uint32_t cpu_to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* exp(c) = p 2^n. Returns p; n = round(c / ln 2) is in the low bits of *out_shifted, minus
 * 0x4b400000. */
CPU_INLINE float cpu_exp_parts(float c, float *out_shifted)
{
    const float shifted = __builtin_fmaf(c, 1.44269504f, 0x1.8p23f);
    const float n = shifted - 0x1.8p23f;
    float r = __builtin_fmaf(n, -0.693359375f, c); /* exact: this constant has 9 bits */
    r = __builtin_fmaf(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = __builtin_fmaf(p, r, 1.3981999507e-3f);
    p = __builtin_fmaf(p, r, 8.3334519073e-3f);
    p = __builtin_fmaf(p, r, 4.1665795894e-2f);
    p = __builtin_fmaf(p, r, 1.6666665459e-1f);
    p = __builtin_fmaf(p, r, 5.0000001201e-1f);
    *out_shifted = shifted;
    return __builtin_fmaf(p, r * r, r) + 1.0f;
}

CPU_INLINE float cpu_exp(float x)
{
    const float lowest = -87.3365f, highest = 88.7228f;
    float c = x < lowest ? lowest : x, shifted;
    c = c > highest ? highest : c;
    const float p = cpu_exp_parts(c, &shifted);
    /* Multiplies by 2^n in two steps, because n can be 128. */
    const int32_t k = (int32_t)(cpu_to_bits(shifted) - 0x4b400000u);
    const int32_t half = k >> 1;
    const float s0 = cpu_from_bits((uint32_t)(half + 127) << 23);
    const float s1 = cpu_from_bits((uint32_t)(k - half + 127) << 23);
    float y = p * s0 * s1;
    y = x < lowest ? 0.0f : y;
    y = x > highest ? __builtin_inff() : y;
    return x != x ? x : y;
}

/* exp of x clamped to [-87, 88]. It has no special cases, which halves the work. For NaN it returns
 * some number. */
CPU_INLINE float cpu_exp_clamped(float x)
{
    float c = x > -87.0f ? x : -87.0f, shifted;
    c = c < 88.0f ? c : 88.0f;
    const float p = cpu_exp_parts(c, &shifted);
    return cpu_from_bits(cpu_to_bits(p) + (cpu_to_bits(shifted) << 23)); /* n in [-126, 127] */
}

CPU_INLINE float cpu_sigmoid(float x)
{
    const float y = 1.0f / (1.0f + cpu_exp(-x));
    return x < -87.3365f ? 0.0f : y;
}

CPU_INLINE float cpu_tanh(float x)
{
    const float a = __builtin_fabsf(x);
    const float big = 1.0f - 2.0f / (cpu_exp(2.0f * a) + 1.0f);
    const float z = x * x;
    float p = -5.70498872745e-3f;
    p = __builtin_fmaf(p, z, 2.06390887954e-2f);
    p = __builtin_fmaf(p, z, -5.37397155531e-2f);
    p = __builtin_fmaf(p, z, 1.33314422036e-1f);
    p = __builtin_fmaf(p, z, -3.33332819422e-1f);
    const float small = __builtin_fmaf(p * z, x, x);
    return a < 0.625f ? small : __builtin_copysignf(big, x);
}

/* The share of the standard normal distribution below x: erfc(-x / sqrt 2) / 2. out_e gets
 * exp(-x^2 / 2). With a = |x| / sqrt 2, erfc(a) = exp(-a^2) t Q(t), t = 1 / (1 + a / 2); Q, of
 * degree 8, is ours: fitted to exp(a^2) erfc(a) / t for a in [0, 9.3], relative error 4e-8. */
CPU_INLINE float cpu_normal(float x, float *out_e)
{
    const float a = __builtin_fabsf(x), t = 1.0f / (1.0f + 0.35355339f * a);
    const float e = a > 13.0f ? 0.0f : cpu_exp_clamped(-0.5f * x * x);
    float q = -0.05880045123f;
    q = __builtin_fmaf(q, t, 0.2832585441f);
    q = __builtin_fmaf(q, t, -0.484459027f);
    q = __builtin_fmaf(q, t, 0.274911595f);
    q = __builtin_fmaf(q, t, -0.02443592238f);
    q = __builtin_fmaf(q, t, 0.2017524654f);
    q = __builtin_fmaf(q, t, 0.2433422825f);
    q = __builtin_fmaf(q, t, 0.2823421361f);
    q = __builtin_fmaf(q, t, 0.2820883356f);
    const float tail = 0.5f * e * (t * q);
    *out_e = e;
    return x < 0.0f ? tail : 1.0f - tail;
}

#endif

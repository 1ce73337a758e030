/* Normally distributed random numbers from the counter RNG (Box-Muller), with the same bits in C
 * and CUDA and with every libm.
 *
 * Logarithm, sine and cosine are computed here from their series, with only + - * / and sqrt. Each
 * is accurate to 2 units in the last place of a double.
 */
#ifndef LATHE_KIT_NORMAL_H
#define LATHE_KIT_NORMAL_H

#include <math.h>
#include <string.h>

#include "lathe/rng.h"

/* log(x) for normal x, 0 < x <= 1: x = 2^e m with m in 0.7 .. 1.41, log m = 2 artanh((m - 1)/(m
 * + 1)). */
LATHE_HD static inline double lathe__log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t above = bits - UINT64_C(0x3FE6A09E667F3BCD); /* bits of sqrt(1/2) */
    const double e = (double)((int64_t)above >> 52);
    double m;
    bits -= above & UINT64_C(0xFFF0000000000000);
    memcpy(&m, &bits, sizeof m);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double tail = 0.0;
    for (int k = 23; k >= 3; k -= 2)
        tail = (tail + 1.0 / (double)k) * z;
    const double two = 2.0 * s;
    const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    return e * ln2_high + (two + (two * tail + e * ln2_low));
}

/* sin and cos for 0 <= x < 2 pi, from the remainder x - q pi/2, which is within pi/4. */
LATHE_HD static inline void lathe__sin_cos(double x, double *out_sin, double *out_cos)
{
    const double high = 0x1.921fb54400000p+0,
                 middle = 0x1.0b4611a600000p-34; /* pi/2, 33 bits each */
    const double low = 0x1.3198a2e037073p-69;
    const int q = (int)(x * 0.63661977236758134 + 0.5);
    const double r = ((x - (double)q * high) - (double)q * middle) - (double)q * low;
    const double z = r * r;
    double s = 0.0, c = 0.0;
    for (int k = 18; k >= 2; k -= 2) {
        s = (s + 1.0) * -z / (double)(k * (k + 1));
        c = (c + 1.0) * -z / (double)(k * (k - 1));
    }
    s = r + r * s;
    c = 1.0 + c;
    *out_sin = q % 2 == 0 ? s : c;
    *out_cos = q % 2 == 0 ? c : s;
    *out_sin = q & 2 ? -*out_sin : *out_sin;
    *out_cos = (q + 1) & 2 ? -*out_cos : *out_cos;
}

/** Two independent normal numbers with mean 0 and variance 1, from a block of random words. */
LATHE_HD static inline void lathe_normal_pair(lathe_u32x4 b, double *out_first, double *out_second)
{
    const double radius = sqrt(-2.0 * lathe__log(1.0 - lathe_uniform_f64(b.v[0], b.v[1])));
    double s, c;
    lathe__sin_cos(6.283185307179586 * lathe_uniform_f64(b.v[2], b.v[3]), &s, &c);
    *out_first = radius * c;
    *out_second = radius * s;
}

#endif

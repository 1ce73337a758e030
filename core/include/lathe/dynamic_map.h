/* The dynamic map: 256 values for 8 bits, dense near zero, as bitsandbytes makes it.
 *
 * Decade e = 10^-6 .. 10^0 holds the midpoints between points that divide 0.1 .. 1 evenly: 2^e of
 * them of either sign (signed), or 2^(e+1) (unsigned); then 0 and 1. Ascending.
 * Source: arXiv:1511.04561; bitsandbytes create_dynamic_map, to the bit.
 */
#ifndef LATHE_DYNAMIC_MAP_H
#define LATHE_DYNAMIC_MAP_H

#include <math.h>

#define LATHE_DYNAMIC_DECADES 7

/* Point k of `n` from 0.1 to 1, as torch.linspace rounds it: from the nearer end, in one rounding. */
static inline float lathe_dynamic_point(int k, int n)
{
    const float step = (1.0f - 0.1f) / (float)(n - 1);
    return k < n / 2 ? fmaf(step, (float)k, 0.1f) : fmaf(-step, (float)(n - 1 - k), 1.0f);
}

/** Fills out[256]; with signs, out[127] is 0 and out[254 - k] = -out[k] but for the last, 1. */
static inline void lathe_dynamic_map(float *out, int is_signed)
{
    static const float powers[LATHE_DYNAMIC_DECADES] = {1e-6f, 1e-5f, 1e-4f, 1e-3f,
                                                        1e-2f, 1e-1f, 1.0f};
    int at = is_signed ? 128 : 1;
    for (int e = 0; e < LATHE_DYNAMIC_DECADES; e++) {
        const int n = (1 << (is_signed ? e : e + 1)) + 1;
        for (int k = 0; k + 1 < n; k++, at++) {
            const float mean = (lathe_dynamic_point(k, n) + lathe_dynamic_point(k + 1, n)) / 2.0f;
            out[at] = powers[e] * mean;
            if (is_signed)
                out[254 - at] = -out[at];
        }
    }
    out[is_signed ? 127 : 0] = 0.0f;
    out[255] = 1.0f;
}

#endif

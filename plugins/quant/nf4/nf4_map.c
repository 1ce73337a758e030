/* The two code books: the 16 NF4 values, and the dynamic map of 256 for the scales. */
#include <math.h>

#include "nf4.h"

/* Quantiles of the normal distribution scaled to [-1, 1], with an exact 0 (arXiv:2305.14314, app. E),
 * as bitsandbytes rounds them. */
const float nf4_map[16] = {-1.0f,
                           -0.6961928009986877f,
                           -0.5250730514526367f,
                           -0.39491748809814453f,
                           -0.28444138169288635f,
                           -0.18477343022823334f,
                           -0.09105003625154495f,
                           0.0f,
                           0.07958029955625534f,
                           0.16093020141124725f,
                           0.24611230194568634f,
                           0.33791524171829224f,
                           0.44070982933044434f,
                           0.5626170039176941f,
                           0.7229568362236023f,
                           1.0f};

/* Point k of `n` from 0.1 to 1, as torch.linspace rounds it: from the nearer end, in one rounding. */
static float linspace(int k, int n)
{
    const float step = (1.0f - 0.1f) / (float)(n - 1);
    return k < n / 2 ? fmaf(step, (float)k, 0.1f) : fmaf(-step, (float)(n - 1 - k), 1.0f);
}

/* Decade e (10^-6 .. 10^0) holds the midpoints of 2^e + 1 points from 0.1 to 1, of both signs; then
 * 0 and 1. */
void nf4_dynamic_map(float out[256])
{
    static const float powers[7] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    int at = 128;
    for (int e = 0; e < 7; e++) {
        const int n = (1 << e) + 1;
        for (int k = 0; k + 1 < n; k++, at++) {
            const float mean = (linspace(k, n) + linspace(k + 1, n)) / 2.0f;
            out[at] = powers[e] * mean;
            out[254 - at] = -out[at];
        }
    }
    out[127] = 0.0f;
    out[255] = 1.0f;
}

/* GELU in its exact form and its derivative (element_loops.h).
 *
 *   GELU      y = x P(x),  P(x) = (1 + erf(x / sqrt 2)) / 2
 *   GELU_BWD  dx = dy * (P(x) + x p(x)),  p(x) = exp(-x^2 / 2) / sqrt(2 pi)
 */
#include "base/vecmath.h"
#include "ops/element_loops.h"

CPU_INLINE float exact_gelu(float x)
{
    float e;
    return x * cpu_normal(x, &e);
}

CPU_INLINE float exact_gelu_slope(float x)
{
    float e;
    const float p = cpu_normal(x, &e);
    return __builtin_fmaf(x * 0.39894228f, e, p);
}

CPU_TILE_FN(tile_gelu, exact_gelu(x[j]))
CPU_TILE_FN(tile_gelu_bwd, x[j] * exact_gelu_slope(y[j]))

CPU_TILE_OP(GELU, tile_gelu, 0)
CPU_TILE_OP(GELU_BWD, tile_gelu_bwd, 1)

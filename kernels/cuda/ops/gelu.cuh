/* GELU in its tanh form, and its derivative, for one element: for maps, and after products.
 *
 *   u = sqrt(2/pi) * (x + 0.044715 x^3),  y = x * h,  h = sigmoid(2u) = (1 + tanh u) / 2
 *   dx = dy * (h + 2 x h (1 - h) u'),  u' = sqrt(2/pi) * (1 + 3 * 0.044715 x^2)
 *   with e = exp(-2|u|):  h (1 - h) = e / (1 + e)^2, which does not cancel where h is near 1
 *
 * About 25 instructions per element, two of them (exp and reciprocal) on the special function unit.
 * That fits into the time in which a GPU moves 4 bytes, thanks to __fdividef (2 ulp), which saves
 * the 10 instructions of an exact quotient. __fdividef gives 0 for divisors above 2^126, where the
 * quotient is below 2^-100 of x.
 */
#ifndef LATHE_CUDA_GELU_CUH
#define LATHE_CUDA_GELU_CUH

#include "base/map.cuh"

#define CUDA_ROOT_2_PI 0.7978845608028654f
#define CUDA_GELU_CUBE 0.044715f

static __device__ __forceinline__ float cuda_sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + expf(-x));
}

/** y = gelu(x) */
struct cuda_gelu_fn : cuda_map_fn<1, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *y) const
    {
        const float v = x[0], u = CUDA_ROOT_2_PI * (v + CUDA_GELU_CUBE * v * v * v);
        y[0] = v * cuda_sigmoid(2.0f * u);
    }
};

/** dx = dy * gelu'(x); the inputs are dy and x. */
struct cuda_gelu_bwd_fn : cuda_map_fn<2, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *dx) const
    {
        const float v = x[1], u = CUDA_ROOT_2_PI * (v + CUDA_GELU_CUBE * v * v * v);
        const float e = expf(-2.0f * fabsf(u)), near = __fdividef(1.0f, 1.0f + e);
        const float h = u < 0.0f ? e * near : near;
        const float du = CUDA_ROOT_2_PI * (1.0f + 3.0f * CUDA_GELU_CUBE * v * v);
        dx[0] = x[0] * (h + 2.0f * v * (e * near * near) * du);
    }
};

#undef CUDA_ROOT_2_PI
#undef CUDA_GELU_CUBE

#endif

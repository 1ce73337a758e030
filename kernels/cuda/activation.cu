/* SWIGLU, GELU_TANH and their derivatives: the map of map.cuh.
 *
 *   SWIGLU     y = gate * s * up,  s = sigmoid(gate)
 *              dup = dy * gate * s,  dgate = dy * up * s * (1 + gate * (1 - s))
 *   GELU_TANH  u = sqrt(2/pi) * (x + 0.044715 x^3),  y = x * h,  h = sigmoid(2u) = (1 + tanh u) / 2
 *              dx = dy * (h + 2 x h (1 - h) u'),  u' = sqrt(2/pi) * (1 + 3 * 0.044715 x^2)
 *              with e = exp(-2|u|):  h (1 - h) = e / (1 + e)^2, which does not cancel where h is near 1
 *
 * Bound by memory: 3 and 5 elements moved per element of SWIGLU and of its derivative, 2 and 3 of GELU_TANH,
 * which is the least. About 25 instructions an element, of which one exp and one reciprocal on the special
 * function unit: within what a GPU does while it moves 4 bytes, so __fdividef (2 ulp) in place of an exact
 * quotient's 10 instructions. It gives 0 for divisors above 2^126, where the quotient is below 2^-100 of x.
 */
#include "map.cuh"
#include "op_checks.h"

#define ROOT_2_PI 0.7978845608028654f
#define CUBE 0.044715f

static __device__ __forceinline__ float sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + expf(-x));
}

struct swiglu : cuda_map_fn<2, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *y) const
    {
        y[0] = x[0] * sigmoid(x[0]) * x[1];
    }
};

struct swiglu_bwd : cuda_map_fn<3, 2> {
    __device__ __forceinline__ void operator()(const float *x, float *d) const
    {
        const float dy = x[0], gate = x[1], up = x[2], s = sigmoid(gate);
        d[0] = dy * up * s * (1.0f + gate * (1.0f - s));
        d[1] = dy * gate * s;
    }
};

struct gelu : cuda_map_fn<1, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *y) const
    {
        const float v = x[0], u = ROOT_2_PI * (v + CUBE * v * v * v);
        y[0] = v * sigmoid(2.0f * u);
    }
};

struct gelu_bwd : cuda_map_fn<2, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *dx) const
    {
        const float v = x[1], u = ROOT_2_PI * (v + CUBE * v * v * v);
        const float e = expf(-2.0f * fabsf(u)), near = __fdividef(1.0f, 1.0f + e);
        const float h = u < 0.0f ? e * near : near;
        const float du = ROOT_2_PI * (1.0f + 3.0f * CUBE * v * v);
        dx[0] = x[0] * (h + 2.0f * v * (e * near * near) * du);
    }
};

/* All tensors have the first input's dtype and count. */
template <typename F> static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        const cuda_map_io<T, T, T> io = {(const T *)a->in[0],
                                         F::n_in > 1 ? (const T *)a->in[1] : nullptr,
                                         F::n_in > 2 ? (const T *)a->in[2] : nullptr,
                                         {(T *)a->out[0], F::n_out > 1 ? (T *)a->out[1] : nullptr},
                                         a->accumulate};
        return cuda_map(k, a, F{}, io, lathe_desc_count(&k->in[0]));
    });
}

const kernel_op cuda_op_swiglu = {kernel_check_swiglu, run<swiglu>, nullptr, 0};
const kernel_op cuda_op_swiglu_bwd = {kernel_check_swiglu, run<swiglu_bwd>, nullptr, 3};
const kernel_op cuda_op_gelu = {kernel_check_gelu, run<gelu>, nullptr, 0};
const kernel_op cuda_op_gelu_bwd = {kernel_check_gelu, run<gelu_bwd>, nullptr, 1};

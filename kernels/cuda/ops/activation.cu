/* SWIGLU, GELU_TANH (gelu.cuh), GELU and their derivatives, as maps over elements (map.cuh).
 *
 *   SWIGLU     y = gate * s * up,  s = sigmoid(gate)
 *              dup = dy * gate * s,  dgate = dy * up * s * (1 + gate * (1 - s))
 *   GELU       y = x * P(x),  P(x) = erfc(-x / sqrt 2) / 2
 *              dx = dy * (P(x) + x * exp(-x^2 / 2) / sqrt(2 pi))
 *
 * Bound by memory. Elements moved per element: SWIGLU 3, its derivative 5, GELU_TANH and GELU 2,
 * their derivatives 3, which is the minimum.
 */
#include "ops/gelu.cuh"

struct swiglu : cuda_map_fn<2, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *y) const
    {
        y[0] = x[0] * cuda_sigmoid(x[0]) * x[1];
    }
};

struct swiglu_bwd : cuda_map_fn<3, 2> {
    __device__ __forceinline__ void operator()(const float *x, float *d) const
    {
        const float dy = x[0], gate = x[1], up = x[2], s = cuda_sigmoid(gate);
        d[0] = dy * up * s * (1.0f + gate * (1.0f - s));
        d[1] = dy * gate * s;
    }
};

static __device__ __forceinline__ float normal(float x)
{
    return 0.5f * erfcf(-0.70710678f * x);
}

struct exact_gelu : cuda_map_fn<1, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *y) const
    {
        y[0] = x[0] * normal(x[0]);
    }
};

struct exact_gelu_bwd : cuda_map_fn<2, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *dx) const
    {
        const float v = x[1];
        dx[0] = x[0] * (normal(v) + v * 0.39894228f * expf(-0.5f * v * v));
    }
};

const kernel_op CUDA_OP(SWIGLU) = {nullptr, cuda_map_plain<swiglu>, nullptr, 0};
const kernel_op CUDA_OP(SWIGLU_BWD) = {nullptr, cuda_map_plain<swiglu_bwd>, nullptr, 3};
const kernel_op CUDA_OP(GELU_TANH) = {nullptr, cuda_map_plain<cuda_gelu_fn>, nullptr, 0};
const kernel_op CUDA_OP(GELU_TANH_BWD) = {nullptr, cuda_map_plain<cuda_gelu_bwd_fn>, nullptr, 1};
const kernel_op CUDA_OP(GELU) = {nullptr, cuda_map_plain<exact_gelu>, nullptr, 0};
const kernel_op CUDA_OP(GELU_BWD) = {nullptr, cuda_map_plain<exact_gelu_bwd>, nullptr, 1};

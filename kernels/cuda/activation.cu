/* SWIGLU, GELU_TANH (gelu.cuh) and their derivatives: the map of map.cuh.
 *
 *   SWIGLU     y = gate * s * up,  s = sigmoid(gate)
 *              dup = dy * gate * s,  dgate = dy * up * s * (1 + gate * (1 - s))
 *
 * Bound by memory: 3 and 5 elements moved per element of SWIGLU and of its derivative, 2 and 3 of GELU_TANH,
 * which is the least.
 */
#include "gelu.cuh"

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

const kernel_op CUDA_OP(SWIGLU) = {nullptr, run<swiglu>, nullptr, 0};
const kernel_op CUDA_OP(SWIGLU_BWD) = {nullptr, run<swiglu_bwd>, nullptr, 3};
const kernel_op CUDA_OP(GELU_TANH) = {nullptr, run<cuda_gelu_fn>, nullptr, 0};
const kernel_op CUDA_OP(GELU_TANH_BWD) = {nullptr, run<cuda_gelu_bwd_fn>, nullptr, 1};

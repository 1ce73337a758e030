/* Maps over elements: out[i] = f(in[i]), with up to three inputs and two outputs, each f32, bf16 or
 * f16.
 *
 * Each element is read and written once, in packs that are 16 bytes of the widest dtype; the last
 * elements, and tensors that are not aligned, one by one. Bound by memory, with the fewest bytes.
 */
#ifndef LATHE_CUDA_MAP_CUH
#define LATHE_CUDA_MAP_CUH

#include "base/launch.cuh"

/** Base of a map's function, a struct that is passed by value. The function has
 *     __device__ void operator()(const float *in, float *out) const     in [IN], out [OUT]
 *  and may have its own begin(), which each thread calls first, to load scalars from device
 *  memory. */
template <int IN, int OUT> struct cuda_map_fn {
    static constexpr int n_in = IN, n_out = OUT;

    __device__ void begin()
    {
    }
};

/** The tensors; an output may use the memory of an input of the same dtype. */
template <typename X, typename Y, typename Z> struct cuda_map_io {
    const X *x;
    const Y *y, *w; /* not read if the function has fewer inputs */
    Z *z[2];
    uint32_t accumulate; /* bit i: output i is added to */
};

/* Processes elements first .. first+N-1. */
template <int N, typename F, typename X, typename Y, typename Z>
static __device__ __forceinline__ void cuda_map_pack(const F &f, const cuda_map_io<X, Y, Z> &io,
                                                     int64_t first)
{
    cuda_pack<Y, N> y = {}, w = {};
    cuda_pack<Z, N> z[F::n_out];
    const cuda_pack<X, N> x = cuda_load<N>(io.x + first);
    if (F::n_in > 1)
        y = cuda_load<N>(io.y + first);
    if (F::n_in > 2)
        w = cuda_load<N>(io.w + first);
    for (int o = 0; o < F::n_out; o++)
        z[o] = io.accumulate >> o & 1u ? cuda_load<N>(io.z[o] + first) : cuda_pack<Z, N>{};
    for (int j = 0; j < N; j++) {
        const float in[3] = {cuda_float(x.v[j]), cuda_float(y.v[j]), cuda_float(w.v[j])};
        float out[F::n_out];
        f(in, out);
        for (int o = 0; o < F::n_out; o++)
            cuda_put(&z[o].v[j], io.accumulate >> o & 1u, out[o]);
    }
    for (int o = 0; o < F::n_out; o++)
        cuda_store(io.z[o] + first, z[o]);
}

template <int N, typename F, typename X, typename Y, typename Z>
static __global__ void __launch_bounds__(CUDA_THREADS)
    cuda_map_kernel(F f, cuda_map_io<X, Y, Z> io, int64_t n)
{
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t packed = n / N * N;
    f.begin();
    for (int64_t i = thread * N; i < packed; i += (int64_t)gridDim.x * blockDim.x * N)
        cuda_map_pack<N>(f, io, i);
    if (thread < n - packed)
        cuda_map_pack<1>(f, io, packed + thread);
}

/** Queues the map over n elements. */
template <typename F, typename X, typename Y, typename Z>
static lathe_status cuda_map(const lathe_kernel *k, const lathe_kernel_args *a, F f,
                             cuda_map_io<X, Y, Z> io, int64_t n)
{
    constexpr size_t xy = sizeof(X) > sizeof(Y) ? sizeof(X) : sizeof(Y);
    constexpr int lanes = (int)(16 / (sizeof(Z) > xy ? sizeof(Z) : xy));
    const uintptr_t all = (uintptr_t)io.x | (uintptr_t)io.y | (uintptr_t)io.w | (uintptr_t)io.z[0] |
                          (uintptr_t)io.z[1];
    if (n == 0)
        return LATHE_OK;
    if (all % 16 == 0)
        return cuda_run(k, a, cuda_blocks(cuda_of(k), n / lanes), CUDA_THREADS,
                        cuda_map_kernel<lanes, F, X, Y, Z>, f, io, n);
    return cuda_run(k, a, cuda_blocks(cuda_of(k), n), CUDA_THREADS, cuda_map_kernel<1, F, X, Y, Z>,
                    f, io, n);
}

/** Queues the map of an op over its first inputs and outputs, which have the dtypes X, Y, Z. */
template <typename X, typename Y, typename Z, typename F>
static lathe_status cuda_map_as(const lathe_kernel *k, const lathe_kernel_args *a, F f)
{
    const cuda_map_io<X, Y, Z> io = {(const X *)a->in[0],
                                     F::n_in > 1 ? (const Y *)a->in[1] : nullptr,
                                     F::n_in > 2 ? (const Y *)a->in[2] : nullptr,
                                     {(Z *)a->out[0], F::n_out > 1 ? (Z *)a->out[1] : nullptr},
                                     a->accumulate};
    return cuda_map(k, a, f, io, lathe_desc_count(&k->in[0]));
}

/** Like cuda_map_as, if all tensors have the dtype of the first. */
template <typename F>
static lathe_status cuda_map_same(const lathe_kernel *k, const lathe_kernel_args *a, F f)
{
    CUDA_BY_DTYPE(k->in[0].dtype, T, return (cuda_map_as<T, T, T>(k, a, f)));
}

/** kernel_op.run of an op without attributes, all of whose tensors have one dtype. */
template <typename F>
static lathe_status cuda_map_plain(lathe_kernel *k, const lathe_kernel_args *a)
{
    return cuda_map_same(k, a, F{});
}

/** z = x */
struct cuda_same_fn : cuda_map_fn<1, 1> {
    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = x[0];
    }
};

/** z = x * s, where s is a scalar in device memory. */
struct cuda_times_fn : cuda_map_fn<1, 1> {
    const float *at;
    float s;

    explicit cuda_times_fn(const float *scalar) : at(scalar), s(0.0f)
    {
    }

    __device__ void begin()
    {
        s = *at;
    }

    __device__ __forceinline__ void operator()(const float *x, float *z) const
    {
        z[0] = x[0] * s;
    }
};

/** z += x, n elements of one dtype. */
static inline lathe_status cuda_map_add(const lathe_kernel *k, const lathe_kernel_args *a,
                                        const void *x, void *z, int32_t dtype, int64_t n)
{
    CUDA_BY_DTYPE(dtype, T, {
        return cuda_map(k, a, cuda_same_fn{},
                        cuda_map_io<T, T, T>{(const T *)x, nullptr, nullptr, {(T *)z, nullptr}, 1u},
                        n);
    });
}

#endif

/* Launches kernels, and has what kernels share: elements as floats, sums and maxima over a block.
 *
 * Rules for the kernels of this folder: shared memory is static; sums have a fixed order, which
 * depends only on the shape (no float atomics); no host synchronisation; element indices have 64
 * bits.
 */
#ifndef LATHE_CUDA_LAUNCH_CUH
#define LATHE_CUDA_LAUNCH_CUH

#include "base/cuda.h"

#ifdef LATHE_CUDA_EMULATED
#include "emulator.h" /* tests/emulator runs the kernels as host code, thread by thread */
#else
#include <cuda_runtime.h>
#endif

/* Calls kernel<<<blocks, threads>>>(args...) on the stream of `a`. */
template <typename... P, typename... A>
static lathe_status cuda_run(const lathe_kernel *k, const lathe_kernel_args *a, int64_t blocks,
                             int threads, void (*kernel)(P...), A... args)
{
    const cudaStream_t stream = cuda_stream(a->stream);
    if (blocks > INT32_MAX)
        return lathe_fail(k->host, LATHE_E_UNSUPPORTED, "%s: %lld blocks are more than a grid has",
                          kernel_op_name(k), (long long)blocks);
#ifdef LATHE_CUDA_EMULATED
    const cudaError_t error =
        emulator::launch(kernel_op_name(k), blocks, threads, stream, [=] { kernel(P(args)...); });
#else
    kernel<<<dim3((unsigned)blocks), dim3((unsigned)threads), 0, stream>>>(P(args)...);
    const cudaError_t error = cudaPeekAtLastError();
#endif
    return cuda_status(k->host, error, kernel_op_name(k));
}

#define CUDA_THREADS 256
#define CUDA_WARP 32

/* CUDA_UNROLL(n), before a loop: unrolls n rounds, so that their loads are in flight together.
 * CUDA_UNROLLED: unrolls all rounds, so that an array indexed by the round stays in registers. */
#ifdef LATHE_CUDA_EMULATED
#define CUDA_UNROLL(n)
#define CUDA_UNROLLED
#else
#define CUDA_PRAGMA(text) _Pragma(#text)
#define CUDA_UNROLL(n) CUDA_PRAGMA(unroll n)
#define CUDA_UNROLLED CUDA_PRAGMA(unroll)
#endif

/** Number of blocks of CUDA_THREADS for n items in a grid-stride loop: at most `waves` full loads
 *  of the GPU. Only for work whose result does not depend on the split. */
static inline int64_t cuda_blocks(const cuda_device *d, int64_t n)
{
    const int64_t wanted = (n + CUDA_THREADS - 1) / CUDA_THREADS, most = (int64_t)d->n_sm * 8;
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

/* ---- elements of a compute dtype: T is float, cuda_bf16 or cuda_f16 ---- */

struct cuda_bf16 {
    uint16_t bits;
};

struct cuda_f16 {
    uint16_t bits;
};

static __device__ __forceinline__ float cuda_float(float x)
{
    return x;
}

static __device__ __forceinline__ float cuda_float(cuda_bf16 x)
{
    return lathe_bf16_to_f32(x.bits);
}

static __device__ __forceinline__ float cuda_float(cuda_f16 x)
{
#if defined(__CUDA_ARCH__)
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#else
    return lathe_f16_to_f32(x.bits);
#endif
}

template <typename T> struct cuda_as;

template <> struct cuda_as<float> {
    static __device__ __forceinline__ float from(float x)
    {
        return x;
    }
};

/* The hardware's conversions round as lathe/dtype.h does, to nearest even. */
template <> struct cuda_as<cuda_bf16> {
    static __device__ __forceinline__ cuda_bf16 from(float x)
    {
#if defined(__CUDA_ARCH__)
        cuda_bf16 y;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
        return y;
#else
        return {lathe_f32_to_bf16(x)};
#endif
    }
};

template <> struct cuda_as<cuda_f16> {
    static __device__ __forceinline__ cuda_f16 from(float x)
    {
#if defined(__CUDA_ARCH__)
        cuda_f16 y;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
        return y;
#else
        return {lathe_f32_to_f16(x)};
#endif
    }
};

/** Stores x, or adds it to *p. */
template <typename T> static __device__ __forceinline__ void cuda_put(T *p, int accumulate, float x)
{
    *p = cuda_as<T>::from(accumulate ? cuda_float(*p) + x : x);
}

/** N elements that are loaded and stored as one, for example 8 elements of 2 bytes. The address
 *  must be a multiple of the pack's size, or of 16 if that is smaller (32 bytes are two
 *  accesses). */
template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) cuda_pack {
    T v[N];
};

template <int N, typename T> static __device__ __forceinline__ cuda_pack<T, N> cuda_load(const T *p)
{
    return *(const cuda_pack<T, N> *)p;
}

template <typename T, int N>
static __device__ __forceinline__ void cuda_store(T *p, const cuda_pack<T, N> &x)
{
    *(cuda_pack<T, N> *)p = x;
}

/** Number of elements in 16 bytes. */
template <typename T> constexpr int cuda_lanes = 16 / (int)sizeof(T);

/** Whether n and all pointers allow packs of 16 bytes. Host function. */
static inline int cuda_aligned(int64_t n, int32_t dtype, const void *a, const void *b = nullptr,
                               const void *c = nullptr, const void *d = nullptr)
{
    const uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d;
    return all % 16 == 0 && n * lathe_dtype_bytes(dtype) % 16 == 0;
}

/* Runs `statement` with T the C type of a compute dtype. */
#define CUDA_BY_DTYPE(dtype, T, ...)                                                               \
    do {                                                                                           \
        if ((dtype) == LATHE_F32) {                                                                \
            using T = float;                                                                       \
            __VA_ARGS__;                                                                           \
        } else if ((dtype) == LATHE_BF16) {                                                        \
            using T = cuda_bf16;                                                                   \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            using T = cuda_f16;                                                                    \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/** The value for an index outside its range. A kernel cannot report an error; the check of the loss
 *  reports the NaN. */
static __device__ __forceinline__ float cuda_nan()
{
    return __int_as_float(0x7fc00000);
}

/* ---- sums and maxima over a block, the same on every thread ---- */

template <typename T> static __device__ __forceinline__ T cuda_warp_sum(T x)
{
    for (int lane = CUDA_WARP / 2; lane > 0; lane /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}

template <typename T> static __device__ __forceinline__ T cuda_warp_max(T x)
{
    for (int lane = CUDA_WARP / 2; lane > 0; lane /= 2) {
        const T other = __shfl_xor_sync(0xffffffffu, x, lane);
        x = other > x ? other : x;
    }
    return x;
}

/** Sum over the threads of a block: a whole number of warps, at most 1024 threads. Every thread
 *  must call it, and every thread gets the result. May be called again at once. */
template <typename T> static __device__ T cuda_block_sum(T x)
{
    __shared__ T warps[32];
    const int warp = (int)threadIdx.x / CUDA_WARP, n = (int)blockDim.x / CUDA_WARP;
    x = cuda_warp_sum(x);
    __syncthreads();
    if (threadIdx.x % CUDA_WARP == 0)
        warps[warp] = x;
    __syncthreads();
    T sum = warps[0];
    for (int w = 1; w < n; w++)
        sum += warps[w];
    return sum;
}

/** Maximum over the threads of a block, on every thread. NaN is ignored. */
template <typename T> static __device__ T cuda_block_max(T x)
{
    __shared__ T warps[32];
    const int warp = (int)threadIdx.x / CUDA_WARP, n = (int)blockDim.x / CUDA_WARP;
    x = cuda_warp_max(x);
    __syncthreads();
    if (threadIdx.x % CUDA_WARP == 0)
        warps[warp] = x;
    __syncthreads();
    T most = warps[0];
    for (int w = 1; w < n; w++)
        most = warps[w] > most ? warps[w] : most;
    return most;
}

#endif

/* The backend's own kernels: packed documents as a bias or as bounds, and additions to existing
 * gradients.
 *
 *   bias[r,j] = j >= doc_start[r] ? 0 : -65504        to[r,c] = to[r,c] + from[r,c]
 *
 * The bias is not -inf, because cuDNN's engines process tiles whose keys are all hidden; PyTorch
 * also avoids infinite biases for this reason. -65504, the lowest finite f16 (-65536 in bf16),
 * makes a weight 0 unless its score is 65,000 above the others.
 *
 * Bound by memory: a thread processes 8 elements of 2 bytes, 16 bytes of each tensor.
 */
#include "cudnn_rows.h"

#include <cuda_runtime_api.h>

#ifdef LATHE_CUDA_EMULATED
#include "emulator.h" /* tests/emulator runs the kernels as host code, thread by thread */
#else
#include <cuda_runtime.h>
#endif

constexpr int THREADS = 256, PACK = 8;

struct alignas(16) pack {
    uint16_t x[PACK];
};

template <typename... P, typename... A>
static lathe_status launch(const lathe_host *host, lathe_stream *to, const char *name, int64_t n,
                           void (*kernel)(P...), A... args)
{
    const cudaStream_t stream = (cudaStream_t)cudnn_rows_stream(to);
    const int64_t blocks = (n + THREADS - 1) / THREADS;
    if (blocks > INT32_MAX)
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "attention %s: too many elements", name);
    if (blocks == 0)
        return LATHE_OK;
#ifdef LATHE_CUDA_EMULATED
    const cudaError_t error =
        emulator::launch(name, blocks, THREADS, stream, [=] { kernel(P(args)...); });
#else
    kernel<<<dim3((unsigned)blocks), dim3(THREADS), 0, stream>>>(P(args)...);
    const cudaError_t error = cudaGetLastError();
#endif
    return error == cudaSuccess ? LATHE_OK
                                : lathe_fail(host, LATHE_E_DEVICE, "attention %s: %s", name,
                                             cudaGetErrorString(error));
}

static __global__ void bias_kernel(const int32_t *doc_start, pack *bias, int64_t n, int64_t t,
                                   int64_t packs, uint16_t lowest)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= n)
        return;
    const int64_t row = at / packs, first = at % packs * PACK, query = row % t;
    const int64_t start = doc_start[row] < query ? doc_start[row] : query;
    pack out;
    for (int i = 0; i < PACK; i++)
        out.x[i] = first + i >= start ? (uint16_t)0 : lowest;
    bias[at] = out;
}

static __global__ void starts_kernel(const int32_t *doc_start, int32_t *starts, int64_t n,
                                     int64_t t)
{
    const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= n)
        return;
    const int64_t query = row % t;
    starts[row] = doc_start[row] < query ? doc_start[row] : (int32_t)query;
}

static __device__ __forceinline__ float get(uint16_t bits, int32_t dtype)
{
    return dtype == LATHE_BF16 ? lathe_bf16_to_f32(bits) : lathe_f16_to_f32(bits);
}

static __global__ void add_kernel(const pack *from, pack *to, int64_t n, int64_t width,
                                  int64_t stride, int32_t dtype)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n)
        return;
    const int64_t at = i / width * stride + i % width;
    const pack a = from[at];
    pack b = to[at];
    for (int k = 0; k < PACK; k++) {
        const float sum = get(a.x[k], dtype) + get(b.x[k], dtype);
        b.x[k] = dtype == LATHE_BF16 ? lathe_f32_to_bf16(sum) : lathe_f32_to_f16(sum);
    }
    to[at] = b;
}

extern "C" {

/* The plugin has its own CUDA runtime, so it has to select the same GPU as the device plugin. */
const char *cudnn_rows_follow(int32_t index)
{
    const cudaError_t error = cudaSetDevice(index);
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

void *cudnn_rows_stream(lathe_stream *stream)
{
    return stream == nullptr ? (void *)cudaStreamPerThread : (void *)stream;
}

lathe_status cudnn_rows_bias(const lathe_host *host, int32_t dtype, const int32_t *doc_start,
                             void *bias, int64_t n_rows, int64_t t, int64_t stride,
                             lathe_stream *stream)
{
    const int64_t packs = stride / PACK;
    const uint16_t lowest = dtype == LATHE_BF16 ? 0xc780 : 0xfbff;
    return launch(host, stream, "bias", n_rows * packs, bias_kernel, doc_start, (pack *)bias,
                  n_rows * packs, t, packs, lowest);
}

lathe_status cudnn_rows_starts(const lathe_host *host, const int32_t *doc_start, int32_t *starts,
                               int64_t n_rows, int64_t t, lathe_stream *stream)
{
    return launch(host, stream, "starts", n_rows, starts_kernel, doc_start, starts, n_rows, t);
}

lathe_status cudnn_rows_add(const lathe_host *host, int32_t dtype, const void *from, void *to,
                            int64_t n_rows, int64_t width, int64_t stride, lathe_stream *stream)
{
    return launch(host, stream, "add", n_rows * (width / PACK), add_kernel, (const pack *)from,
                  (pack *)to, n_rows * (width / PACK), width / PACK, stride / PACK, dtype);
}

} // extern "C"

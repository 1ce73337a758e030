/* CUMSUM: y[j] = x[0] + .. + x[j] for each row, in f32; with `inverse`, y[j] = x[j] + .. + x[d-1].
 *
 * A block computes a row, CUDA_THREADS elements at a time. It adds the sums within a warp, the sums
 * of the warps before it, and the sum of all earlier elements. Bound by memory: each element is
 * read and written once.
 */
#include "base/launch.cuh"

/* Sum of x over this thread and the threads before it in its warp. */
static __device__ __forceinline__ float warp_upto(float x)
{
    const int lane = (int)threadIdx.x % CUDA_WARP;
    for (unsigned step = 1; step < CUDA_WARP; step *= 2) {
        const float other = __shfl_up_sync(0xffffffffu, x, step);
        x += lane >= (int)step ? other : 0.0f;
    }
    return x;
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    cumsum(const T *x, T *y, int64_t d, int inverse, int accumulate)
{
    constexpr int n_warps = CUDA_THREADS / CUDA_WARP;
    __shared__ float warps[n_warps];
    const int warp = (int)threadIdx.x / CUDA_WARP;
    const int64_t first = (int64_t)blockIdx.x * d;
    float before = 0.0f;
    for (int64_t from = 0; from < d; from += CUDA_THREADS) {
        const int64_t j = from + threadIdx.x, i = first + (inverse ? d - 1 - j : j);
        float sum = warp_upto(j < d ? cuda_float(x[i]) : 0.0f);
        if (threadIdx.x % CUDA_WARP == CUDA_WARP - 1)
            warps[warp] = sum;
        __syncthreads();
        float tile = 0.0f;
        for (int w = 0; w < n_warps; w++) {
            sum += w < warp ? warps[w] : 0.0f;
            tile += warps[w];
        }
        if (j < d)
            cuda_put(y + i, accumulate, before + sum);
        before += tile;
        __syncthreads(); /* all threads have read the warps' sums */
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *x = &k->in[0];
    const int64_t d = x->dims[x->rank - 1], n = lathe_desc_count(x);
    if (n == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(x->dtype, T, {
        return cuda_run(k, a, n / d, CUDA_THREADS, cumsum<T>, (const T *)a->in[0], (T *)a->out[0],
                        d, (int)(k->attrs.inverse != 0), (int)(a->accumulate & 1u));
    });
}

const kernel_op CUDA_OP(CUMSUM) = {nullptr, run, nullptr, 1};

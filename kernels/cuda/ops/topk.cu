/* TOPK and its derivative: the k largest elements of each row, largest first; equal elements keep
 * their order. NaN is never selected: if a row has fewer than k numbers, the remaining places get
 * NaN and the index -1.
 *
 * A block processes a row and reads it k times; each time it finds the largest element after the
 * one found before. Meant for small k and rows that fit the cache.
 */
#include "base/launch.cuh"

/* An element and its place. It ranks before another if it is larger, or equal and earlier. */
struct ranked {
    float x;
    int32_t i; /* -1: none */
};

static __device__ __forceinline__ int is_before(ranked a, ranked b)
{
    return a.i >= 0 && (b.i < 0 || a.x > b.x || (a.x == b.x && a.i < b.i));
}

/* The first in rank among the block's threads, on every thread. */
static __device__ ranked first_of_block(ranked best)
{
    __shared__ float xs[CUDA_THREADS];
    __shared__ int32_t is[CUDA_THREADS];
    xs[threadIdx.x] = best.x;
    is[threadIdx.x] = best.i;
    __syncthreads();
    for (int half = CUDA_THREADS / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half) {
            const ranked mine = {xs[threadIdx.x], is[threadIdx.x]};
            const ranked other = {xs[threadIdx.x + half], is[threadIdx.x + half]};
            if (is_before(other, mine)) {
                xs[threadIdx.x] = other.x;
                is[threadIdx.x] = other.i;
            }
        }
        __syncthreads();
    }
    const ranked first = {xs[0], is[0]};
    __syncthreads(); /* the next call uses the arrays again */
    return first;
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    topk(const T *x, T *y, int32_t *index, int64_t k, int64_t v)
{
    const T *row = x + (int64_t)blockIdx.x * v;
    ranked last = {0.0f, -1};
    for (int64_t j = 0; j < k; j++) {
        ranked best = {0.0f, -1};
        for (int64_t i = threadIdx.x; i < v; i += blockDim.x) {
            const ranked e = {cuda_float(row[i]), (int32_t)i};
            if (e.x == e.x && (j == 0 || is_before(last, e)) && is_before(e, best))
                best = e;
        }
        last = first_of_block(best);
        if (threadIdx.x == 0) {
            y[(int64_t)blockIdx.x * k + j] = cuda_as<T>::from(last.i < 0 ? cuda_nan() : last.x);
            index[(int64_t)blockIdx.x * k + j] = last.i;
        }
    }
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    put_back(const T *dy, const int32_t *index, T *dx, int64_t k, int64_t v, int accumulate)
{
    T *row = dx + (int64_t)blockIdx.x * v;
    for (int64_t i = threadIdx.x; i < v && !accumulate; i += blockDim.x)
        row[i] = cuda_as<T>::from(0.0f);
    __syncthreads();
    for (int64_t j = threadIdx.x; j < k; j += blockDim.x) { /* every index is different */
        const int32_t at = index[(int64_t)blockIdx.x * k + j];
        if (at >= 0 && at < v)
            cuda_put(row + at, 1, cuda_float(dy[(int64_t)blockIdx.x * k + j]));
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    if (k->in[0].dims[0] == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, k->in[0].dims[0], CUDA_THREADS, topk<T>, (const T *)a->in[0],
                        (T *)a->out[0], (int32_t *)a->out[1], k->out[0].dims[1], k->in[0].dims[1]);
    });
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    if (k->in[0].dims[0] == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, k->in[0].dims[0], CUDA_THREADS, put_back<T>, (const T *)a->in[0],
                        (const int32_t *)a->in[1], (T *)a->out[0], k->in[0].dims[1],
                        k->out[0].dims[1], (int)(a->accumulate & 1u));
    });
}

const kernel_op CUDA_OP(TOPK) = {nullptr, run, nullptr, 0};
const kernel_op CUDA_OP(TOPK_BWD) = {nullptr, run_bwd, nullptr, 1};

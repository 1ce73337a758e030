/* SKEW: skew-symmetric blocks from what is above their diagonals; with `inverse`, each result is
 * the difference of the two elements that mirror each other.
 *
 * A thread computes one element of y. Bound by memory; the tensors are parameters, and small.
 */
#include "base/launch.cuh"

/* Place of [i, j], i < j, among the elements above the diagonal of a matrix [b, b]. */
static __device__ __forceinline__ int64_t above(int64_t b, int64_t i, int64_t j)
{
    return i * b - i * (i + 1) / 2 + j - i - 1;
}

/* x [blocks, b(b-1)/2], y [b, blocks*b] */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    spread(const T *x, T *y, int64_t b, int64_t width, int accumulate)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < b * width; e += step) {
        const int64_t i = e / width, g = e % width / b, j = e % b;
        const T *row = x + g * (b * (b - 1) / 2);
        float v = 0.0f;
        if (i < j)
            v = cuda_float(row[above(b, i, j)]);
        else if (i > j)
            v = -cuda_float(row[above(b, j, i)]);
        cuda_put(y + e, accumulate, v);
    }
}

/* x [b, blocks*b], y [blocks, b(b-1)/2]. A thread looks at an element of x. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    gather(const T *x, T *y, int64_t b, int64_t width, int accumulate)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < b * width; e += step) {
        const int64_t i = e / width, g = e % width / b, j = e % b;
        if (i < j)
            cuda_put(y + g * (b * (b - 1) / 2) + above(b, i, j), accumulate,
                     cuda_float(x[e]) - cuda_float(x[j * width + g * b + i]));
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *blocks = k->attrs.inverse ? &k->in[0] : &k->out[0];
    const int64_t b = blocks->dims[0], width = blocks->dims[1];
    const int adds = (int)(a->accumulate & 1u);
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, cuda_blocks(cuda_of(k), b * width), CUDA_THREADS,
                        k->attrs.inverse ? gather<T> : spread<T>, (const T *)a->in[0],
                        (T *)a->out[0], b, width, adds);
    });
}

const kernel_op CUDA_OP(SKEW) = {nullptr, run, nullptr, 1};

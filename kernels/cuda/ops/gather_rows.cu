/* GATHER and SCATTER: copy and add rows by index. The index -1 means no row.
 *
 *   GATHER   y[n] = x[index[n]], a row of zeros for -1
 *   SCATTER  y[index[n]] += x[n], in the order of n, in f32
 *
 * For other indices outside the rows, GATHER gives a row of NaN and SCATTER adds nothing.
 *
 * GATHER is bound by memory. SCATTER uses one block per row of y, which reads the whole index a
 * tile at a time and skips tiles that do not contain its row: rows * N / CUDA_THREADS tiles in all.
 */
#include "base/launch.cuh"

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    gather(const T *x, const int32_t *index, T *y, int64_t rows, int64_t n, int64_t row,
           int accumulate)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n * row;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t place = i / row, from = index[place];
        float v = from == -1 ? 0.0f : cuda_nan();
        if (from >= 0 && from < rows)
            v = cuda_float(x[from * row + (i - place * row)]);
        cuda_put(y + i, accumulate, v);
    }
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    scatter(const T *x, const int32_t *index, T *y, int64_t n, int64_t row, int64_t slices,
            int accumulate)
{
    __shared__ int32_t tile[CUDA_THREADS];
    const int64_t r = blockIdx.x / slices;
    const int64_t j = blockIdx.x % slices * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int64_t first = 0; first < n; first += CUDA_THREADS) {
        const int64_t i = first + threadIdx.x;
        const int32_t at = i < n ? index[i] : -1;
        tile[threadIdx.x] = at;
        const int named = (int)cuda_block_sum(at == r ? 1.0f : 0.0f);
        if (named > 0 && j < row)
            for (int e = 0; e < CUDA_THREADS; e++)
                if (tile[e] == r)
                    sum += cuda_float(x[(first + e) * row + j]);
        __syncthreads(); /* all threads have read the tile */
    }
    if (j < row)
        cuda_put(y + r * row + j, accumulate, sum);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[1]), rows = k->in[0].dims[0];
    const int64_t row = lathe_desc_count(&k->in[0]) / rows;
    if (n * row == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, cuda_blocks(cuda_of(k), n * row), CUDA_THREADS, gather<T>,
                        (const T *)a->in[0], (const int32_t *)a->in[1], (T *)a->out[0], rows, n,
                        row, (int)(a->accumulate & 1u));
    });
}

static lathe_status run_scatter(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[1]), rows = k->out[0].dims[0];
    const int64_t row = lathe_desc_count(&k->out[0]) / rows;
    const int64_t slices = (row + CUDA_THREADS - 1) / CUDA_THREADS;
    if (row == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, rows * slices, CUDA_THREADS, scatter<T>, (const T *)a->in[0],
                        (const int32_t *)a->in[1], (T *)a->out[0], n, row, slices,
                        (int)(a->accumulate & 1u));
    });
}

const kernel_op CUDA_OP(GATHER) = {nullptr, run, nullptr, 1};
const kernel_op CUDA_OP(SCATTER) = {nullptr, run_scatter, nullptr, 1};

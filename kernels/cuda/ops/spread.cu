/* Broadcasts a vector over a matrix, and sums a matrix to a vector, in f32 and a fixed order.
 *
 *   BROADCAST_ROW     y[n,j] = v[j]      SUM_ROWS     y[j] = sum of x[n,j] over n
 *   BROADCAST_COLUMN  y[n,j] = v[n]      SUM_COLUMNS  y[n] = sum of x[n,j] over j
 *
 * Bound by memory: the matrix is read or written once.
 */
#include "base/columns.cuh"

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    broadcast(const float *v, T *y, int64_t n, int64_t cols, int is_row, int accumulate)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        cuda_put(y + i, accumulate, v[is_row ? i % cols : i / cols]);
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    sum_row(const T *x, float *y, int64_t cols, int accumulate)
{
    const T *row = x + (int64_t)blockIdx.x * cols;
    float sum = 0.0f;
    for (int64_t j = threadIdx.x; j < cols; j += blockDim.x)
        sum += cuda_float(row[j]);
    sum = cuda_block_sum(sum);
    if (threadIdx.x == 0)
        cuda_put(y + blockIdx.x, accumulate, sum);
}

static lathe_status run_broadcast(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->out[0]);
    const int is_row = k->op_id == LATHE_OP_BROADCAST_ROW, add = (int)(a->accumulate & 1u);
    if (n == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(k->out[0].dtype, T, {
        return cuda_run(k, a, cuda_blocks(cuda_of(k), n), CUDA_THREADS, broadcast<T>,
                        (const float *)a->in[0], (T *)a->out[0], n, k->out[0].dims[1], is_row, add);
    });
}

static lathe_status run_sum_columns(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t rows = k->in[0].dims[0], cols = k->in[0].dims[1];
    if (rows == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, rows, cols < 1024 ? CUDA_WARP : CUDA_THREADS, sum_row<T>,
                        (const T *)a->in[0], (float *)a->out[0], cols, (int)(a->accumulate & 1u));
    });
}

static lathe_status prepare_sum_rows(lathe_kernel *k, int64_t *out_scratch)
{
    *out_scratch = cuda_columns_scratch(k->in[0].dims[0], k->in[0].dims[1]);
    return LATHE_OK;
}

static lathe_status run_sum_rows(lathe_kernel *k, const lathe_kernel_args *a)
{
    return cuda_columns_sum(k, a, a->in[0], k->in[0].dtype, k->in[0].dims[0], k->in[0].dims[1],
                            (float *)a->out[0], (int)(a->accumulate & 1u));
}

const kernel_op CUDA_OP(BROADCAST_ROW) = {nullptr, run_broadcast, nullptr, 1};
const kernel_op CUDA_OP(BROADCAST_COLUMN) = {nullptr, run_broadcast, nullptr, 1};
const kernel_op CUDA_OP(SUM_ROWS) = {prepare_sum_rows, run_sum_rows, nullptr, 1};
const kernel_op CUDA_OP(SUM_COLUMNS) = {nullptr, run_sum_columns, nullptr, 1};

/* EXPERT_PLACES, EXPERT_ROWS, EXPERT_SUM and EXPERT_SUM_BWD: the rows of tokens in the order of
 * their experts, and back.
 *
 * The order is that of a counting sort: a block for each expert counts its rows, one thread adds
 * the counts up, and then the blocks number their rows, a tile of the index at a time. Each block
 * reads the whole index twice, E * N * K numbers in all, which is little beside the products.
 * An index outside the experts counts as 0.
 *
 * The other ops are bound by memory. */
#include "base/launch.cuh"

static __device__ __forceinline__ int is_of(int32_t index, int32_t expert, int32_t experts)
{
    return (index < 0 || index >= experts ? 0 : index) == expert;
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    count_rows(const int32_t *index, int32_t *first, int64_t n, int32_t experts)
{
    __shared__ int32_t counts[CUDA_THREADS];
    int32_t mine = 0;
    for (int64_t i = threadIdx.x; i < n; i += CUDA_THREADS)
        mine += is_of(index[i], (int32_t)blockIdx.x, experts);
    counts[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int i = 1; i < CUDA_THREADS; i++)
        mine += counts[i];
    first[blockIdx.x + 1] = mine;
}

static __global__ void add_counts(int32_t *first, int32_t experts)
{
    if (blockIdx.x != 0 || threadIdx.x != 0)
        return;
    first[0] = 0;
    for (int32_t e = 1; e <= experts; e++)
        first[e] += first[e - 1];
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    number_rows(const int32_t *index, const int32_t *first, int32_t *place, int64_t n,
                int32_t experts)
{
    __shared__ int32_t named[CUDA_THREADS];
    int32_t next = first[blockIdx.x];
    for (int64_t from = 0; from < n; from += CUDA_THREADS) {
        const int64_t i = from + threadIdx.x;
        named[threadIdx.x] = i < n && is_of(index[i], (int32_t)blockIdx.x, experts);
        __syncthreads();
        int32_t before = 0, all = 0;
        for (int j = 0; j < CUDA_THREADS; j++) {
            before += j < (int)threadIdx.x ? named[j] : 0;
            all += named[j];
        }
        if (named[threadIdx.x])
            place[i] = next + before;
        next += all;
        __syncthreads(); /* all threads have read the tile */
    }
}

static lathe_status run_places(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]);
    const int32_t experts = (int32_t)k->attrs.count;
    const int32_t *index = (const int32_t *)a->in[0];
    int32_t *first = (int32_t *)a->out[1];
    LATHE_TRY(cuda_run(k, a, experts, CUDA_THREADS, count_rows, index, first, n, experts));
    LATHE_TRY(cuda_run(k, a, 1, CUDA_THREADS, add_counts, first, experts));
    return cuda_run(k, a, experts, CUDA_THREADS, number_rows, index, (const int32_t *)first,
                    (int32_t *)a->out[0], n, experts);
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    spread_rows(const T *x, const int32_t *place, T *y, int64_t rows, int64_t k, int64_t c,
                int accumulate)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * c;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = i / c, to = place[row];
        if (to >= 0 && to < rows)
            cuda_put(y + to * c + (i - row * c), accumulate,
                     cuda_float(x[row / k * c + (i - row * c)]));
    }
}

static lathe_status run_rows(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t rows = k->out[0].dims[0], c = k->out[0].dims[1];
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, cuda_blocks(cuda_of(k), rows * c), CUDA_THREADS, spread_rows<T>,
                        (const T *)a->in[0], (const int32_t *)a->in[1], (T *)a->out[0], rows,
                        k->in[1].dims[1], c, (int)(a->accumulate & 1u));
    });
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    sum_rows(const T *x, const float *weight, const int32_t *place, T *y, int64_t n, int64_t k,
             int64_t c, int accumulate)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n * c;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = i / c;
        float sum = 0.0f;
        for (int64_t j = row * k; j < (row + 1) * k; j++) {
            const int64_t from = place[j];
            const float v =
                from >= 0 && from < n * k ? cuda_float(x[from * c + (i - row * c)]) : cuda_nan();
            sum += (weight != nullptr ? weight[j] : 1.0f) * v;
        }
        cuda_put(y + i, accumulate, sum);
    }
}

static lathe_status run_sum(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = k->out[0].dims[0], c = k->out[0].dims[1];
    const float *weight = kernel_has_in(k, 1) ? (const float *)a->in[1] : nullptr;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, cuda_blocks(cuda_of(k), n * c), CUDA_THREADS, sum_rows<T>,
                        (const T *)a->in[0], weight, (const int32_t *)a->in[2], (T *)a->out[0], n,
                        k->in[2].dims[1], c, (int)(a->accumulate & 1u));
    });
}

/* A block processes a row of x. */
template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    sum_rows_bwd(const T *dy, const T *x, const float *weight, const int32_t *place, T *dx,
                 float *dweight, int64_t rows, int64_t k, int64_t c, int accumulate)
{
    const int64_t j = blockIdx.x, row = place[j];
    float dot = 0.0f;
    for (int64_t i = threadIdx.x; i < c && row >= 0 && row < rows; i += CUDA_THREADS) {
        const float d = cuda_float(dy[j / k * c + i]);
        dot += d * cuda_float(x[row * c + i]);
        cuda_put(dx + row * c + i, accumulate & 1, weight[j] * d);
    }
    dot = cuda_block_sum(dot);
    if (threadIdx.x == 0 && dweight != nullptr)
        dweight[j] = (accumulate & 2) != 0 ? dweight[j] + dot : dot;
}

static lathe_status run_sum_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t rows = k->in[1].dims[0], c = k->in[1].dims[1];
    float *dweight = kernel_has_out(k, 1) ? (float *)a->out[1] : nullptr;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, rows, CUDA_THREADS, sum_rows_bwd<T>, (const T *)a->in[0],
                        (const T *)a->in[1], (const float *)a->in[2], (const int32_t *)a->in[3],
                        (T *)a->out[0], dweight, rows, k->in[3].dims[1], c, (int)a->accumulate);
    });
}

const kernel_op CUDA_OP(EXPERT_PLACES) = {nullptr, run_places, nullptr, 0};
const kernel_op CUDA_OP(EXPERT_ROWS) = {nullptr, run_rows, nullptr, 1};
const kernel_op CUDA_OP(EXPERT_SUM) = {nullptr, run_sum, nullptr, 1};
const kernel_op CUDA_OP(EXPERT_SUM_BWD) = {nullptr, run_sum_bwd, nullptr, 3};

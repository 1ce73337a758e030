/* SUM, ROW_SUM, their derivative BROADCAST, and L2_NORMALIZE. Sums run in f64, split as in
 * sums.cuh.
 *
 *   SUM           y = sum of x
 *   ROW_SUM       y[r] = sum of x[r*T .. r*T+T-1], T = count
 *   BROADCAST     y[i] = x[i / count]
 *   L2_NORMALIZE  y = x / max(|x|_2, eps)
 *
 * For SUM and the norm, each block writes the sum of 16384 elements to the scratch, and one block
 * adds these. Bound by memory, or by f64 arithmetic on GPUs with few f64 units. x is read once, by
 * L2_NORMALIZE twice.
 */
#include "base/map.cuh"
#include "base/sums.cuh"

template <int SQUARES>
static __global__ void __launch_bounds__(CUDA_THREADS)
    sum_pieces(const float *x, double *partials, int64_t n)
{
    const double sum = cuda_range_sum(cuda_piece_first(), cuda_piece_last(n), [&](int64_t i) {
        const double v = (double)x[i];
        return SQUARES ? v * v : v;
    });
    if (threadIdx.x == 0)
        partials[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    add_pieces(const double *partials, int64_t pieces, float *y, int accumulate)
{
    const double sum = cuda_range_sum(0, pieces, [&](int64_t i) { return partials[i]; });
    if (threadIdx.x == 0)
        cuda_put(y, accumulate, (float)sum);
}

/* factor = 1 / max(norm, eps). */
static __global__ void __launch_bounds__(CUDA_THREADS)
    norm_factor(const double *partials, int64_t pieces, float *factor, double eps)
{
    const double norm = sqrt(cuda_range_sum(0, pieces, [&](int64_t i) { return partials[i]; }));
    if (threadIdx.x == 0)
        *factor = (float)(1.0 / (norm > eps ? norm : eps));
}

static __global__ void __launch_bounds__(CUDA_THREADS)
    sum_row(const float *x, float *y, int64_t count, int accumulate)
{
    const float *row = x + (int64_t)blockIdx.x * count;
    const double sum = cuda_range_sum(0, count, [&](int64_t i) { return (double)row[i]; });
    if (threadIdx.x == 0)
        cuda_put(y + blockIdx.x, accumulate, (float)sum);
}

/* Four elements per thread, so that a thread divides once. */
static __global__ void __launch_bounds__(CUDA_THREADS)
    broadcast(const float *x, float *y, int64_t n, int64_t count, int accumulate)
{
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4; i < n;
         i += (int64_t)gridDim.x * blockDim.x * 4) {
        int64_t row = i / count, left = count - (i - row * count);
        for (int64_t j = i; j < i + 4 && j < n; j++) {
            if (left-- == 0) {
                row++;
                left = count - 1;
            }
            cuda_put(y + j, accumulate, x[row]);
        }
    }
}

static lathe_status prepare_sum(lathe_kernel *k, int64_t *out_scratch)
{
    *out_scratch = cuda_sum_pieces(lathe_desc_count(&k->in[0])) * (int64_t)sizeof(double);
    return LATHE_OK;
}

static lathe_status run_sum(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]), pieces = cuda_sum_pieces(n);
    double *partials = (double *)a->scratch;
    LATHE_TRY(
        cuda_run(k, a, pieces, CUDA_THREADS, sum_pieces<0>, (const float *)a->in[0], partials, n));
    return cuda_run(k, a, 1, CUDA_THREADS, add_pieces, (const double *)partials, pieces,
                    (float *)a->out[0], (int)(a->accumulate & 1u));
}

static lathe_status run_row_sum(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t rows = lathe_desc_count(&k->out[0]), count = k->attrs.count;
    if (rows == 0)
        return LATHE_OK;
    return cuda_run(k, a, rows, count < 1024 ? CUDA_WARP : CUDA_THREADS, sum_row,
                    (const float *)a->in[0], (float *)a->out[0], count, (int)(a->accumulate & 1u));
}

static lathe_status run_broadcast(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->out[0]);
    if (n == 0)
        return LATHE_OK;
    return cuda_run(k, a, cuda_blocks(cuda_of(k), (n + 3) / 4), CUDA_THREADS, broadcast,
                    (const float *)a->in[0], (float *)a->out[0], n, k->attrs.count,
                    (int)(a->accumulate & 1u));
}

/* Scratch: the partial sums, then the factor. */
static lathe_status prepare_normalize(lathe_kernel *k, int64_t *out_scratch)
{
    *out_scratch = (cuda_sum_pieces(lathe_desc_count(&k->in[0])) + 1) * (int64_t)sizeof(double);
    return LATHE_OK;
}

static lathe_status run_normalize(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]), pieces = cuda_sum_pieces(n);
    const float *x = (const float *)a->in[0];
    double *partials = (double *)a->scratch;
    float *factor = (float *)(partials + pieces);
    LATHE_TRY(cuda_run(k, a, pieces, CUDA_THREADS, sum_pieces<1>, x, partials, n));
    LATHE_TRY(cuda_run(k, a, 1, CUDA_THREADS, norm_factor, (const double *)partials, pieces, factor,
                       (double)k->attrs.eps));
    CUDA_BY_DTYPE(k->out[0].dtype, Z, {
        return cuda_map(k, a, cuda_times_fn(factor),
                        cuda_map_io<float, float, Z>{
                            x, nullptr, nullptr, {(Z *)a->out[0], nullptr}, a->accumulate},
                        n);
    });
}

const kernel_op CUDA_OP(SUM) = {prepare_sum, run_sum, nullptr, 1};
const kernel_op CUDA_OP(ROW_SUM) = {nullptr, run_row_sum, nullptr, 1};
const kernel_op CUDA_OP(BROADCAST) = {nullptr, run_broadcast, nullptr, 1};
const kernel_op CUDA_OP(L2_NORMALIZE) = {prepare_normalize, run_normalize, nullptr, 1};

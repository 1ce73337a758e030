/* SUM_SQUARES and UPDATE_SQUARES: sums of squares in f64, for the norms of a step.
 *
 *   SUM_SQUARES     y[s] = sum of x[e]^2 over segment s
 *   UPDATE_SQUARES  y[k] = sum of (s*(alpha*u + beta*p))^2 over 16384 elements
 *
 * A segment that is not within x gives NaN. A block computes a sum, split as in sums.cuh. Bound by
 * memory, or by f64 arithmetic on GPUs with few f64 units; each element is read once.
 */
#include "base/sums.cuh"

LATHE_STATIC_ASSERT(CUDA_SUM_PIECE == 16384, "a block is a sum of UPDATE_SQUARES");

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    sum_squares(const T *x, int64_t n, const int64_t *segments, double *y)
{
    const int64_t first = segments[2 * (int64_t)blockIdx.x];
    const int64_t count = segments[2 * (int64_t)blockIdx.x + 1];
    const int fits = first >= 0 && count >= 0 && first <= n && count <= n - first;
    const double sum = cuda_range_sum(0, fits ? count : 0, [&](int64_t i) {
        const double v = (double)cuda_float(x[first + i]);
        return v * v;
    });
    if (threadIdx.x == 0)
        y[blockIdx.x] = fits ? sum : (double)cuda_nan();
}

struct update {
    const float *p, *scalar;
    double alpha, beta;
};

template <typename U>
static __global__ void __launch_bounds__(CUDA_THREADS)
    update_squares(update t, const U *u, double *y, int64_t n)
{
    const double s = (double)*t.scalar;
    const double sum = cuda_range_sum(cuda_piece_first(), cuda_piece_last(n), [&](int64_t i) {
        const double d = s * (t.alpha * (double)cuda_float(u[i]) + t.beta * (double)t.p[i]);
        return d * d;
    });
    if (threadIdx.x == 0)
        y[blockIdx.x] = sum;
}

static lathe_status run_sum(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->out[0]);
    if (n == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, n, CUDA_THREADS, sum_squares<T>, (const T *)a->in[0],
                        lathe_desc_count(&k->in[0]), (const int64_t *)a->in[1],
                        (double *)a->out[0]);
    });
}

static lathe_status run_update(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]);
    const update t = {(const float *)a->in[0], (const float *)a->in[2] + k->attrs.start,
                      k->attrs.alpha, k->attrs.beta};
    if (n == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(k->in[1].dtype, U, {
        return cuda_run(k, a, cuda_sum_pieces(n), CUDA_THREADS, update_squares<U>, t,
                        (const U *)a->in[1], (double *)a->out[0], n);
    });
}

const kernel_op CUDA_OP(SUM_SQUARES) = {nullptr, run_sum, nullptr, 0};
const kernel_op CUDA_OP(UPDATE_SQUARES) = {nullptr, run_update, nullptr, 0};

/* RMSNORM and its derivative, over groups of D elements.
 *
 *   y = x * rstd * g,   rstd = 1 / sqrt(mean(x^2) + eps),   g = w (or 1 + w with offset_one)
 *   dx = rstd * (dy*g - xhat * mean(dy*g*xhat)),  dw = sum over rows of dy*xhat,  xhat = x*rstd
 *
 * A block takes a row; the backward gives each block a fixed run of rows and adds the blocks' sums of dw
 * in order. Bound by memory.
 */
#include "columns.cuh"
#include "launch.cuh"
#include "op_checks.h"

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    forward(const T *x, const float *w, T *y, float *rstd, int64_t d, float eps, float offset)
{
    const int64_t row = blockIdx.x;
    x += row * d;
    y += row * d;
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < d; i += blockDim.x)
        sum += cuda_float(x[i]) * cuda_float(x[i]);
    const float r = 1.0f / sqrtf(cuda_block_sum(sum) / (float)d + eps);
    if (threadIdx.x == 0)
        rstd[row] = r;
    for (int64_t i = threadIdx.x; i < d; i += blockDim.x)
        y[i] = cuda_as<T>::from(cuda_float(x[i]) * r * (w[i] + offset));
}

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    backward(const T *dy, const T *x, const float *w, const float *rstd, T *dx, float *partials,
             int64_t rows, int64_t rows_per_block, int64_t d, float offset, int accumulate)
{
    const int64_t first = blockIdx.x * rows_per_block;
    const int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
    float *dw =
        partials == nullptr ? nullptr : partials + blockIdx.x * d; /* a thread's own columns */
    for (int64_t i = threadIdx.x; dw != nullptr && i < d; i += blockDim.x)
        dw[i] = 0.0f;
    for (int64_t row = first; row < last; row++) {
        const T *dy_row = dy + row * d, *x_row = x + row * d;
        float dot = 0.0f;
        for (int64_t i = threadIdx.x; i < d; i += blockDim.x)
            dot += cuda_float(dy_row[i]) * (w[i] + offset) * cuda_float(x_row[i]);
        const float r = rstd[row], back = cuda_block_sum(dot) * r / (float)d * r;
        for (int64_t i = threadIdx.x; i < d; i += blockDim.x) {
            const float g = cuda_float(dy_row[i]), v = cuda_float(x_row[i]);
            if (dw != nullptr)
                dw[i] += g * (v * r);
            cuda_put(dx + row * d + i, accumulate, r * (g * (w[i] + offset) - v * back));
        }
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t d = lathe_desc_count(&k->in[1]), rows = lathe_desc_count(&k->in[0]) / d;
    const float offset = k->attrs.offset_one ? 1.0f : 0.0f;
    if (rows == 0)
        return LATHE_OK;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        return cuda_run(k, a, rows, CUDA_THREADS, forward<T>, (const T *)a->in[0],
                        (const float *)a->in[1], (T *)a->out[0], (float *)a->out[1], d,
                        k->attrs.eps, offset);
    });
}

static lathe_status prepare_bwd(lathe_kernel *k, int64_t *out_scratch)
{
    LATHE_TRY(kernel_check_rmsnorm_bwd(k, out_scratch));
    if (kernel_has_out(k, 1))
        *out_scratch =
            cuda_columns_scratch(lathe_desc_count(&k->in[3]), lathe_desc_count(&k->in[2]));
    return LATHE_OK;
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t d = lathe_desc_count(&k->in[2]), rows = lathe_desc_count(&k->in[3]);
    const float offset = k->attrs.offset_one ? 1.0f : 0.0f;
    float *partials = kernel_has_out(k, 1) ? (float *)a->scratch : nullptr;
    const int64_t blocks = cuda_columns_parts(rows);
    CUDA_BY_DTYPE(k->in[1].dtype, T, {
        LATHE_TRY(cuda_run(k, a, blocks, CUDA_THREADS, backward<T>, (const T *)a->in[0],
                           (const T *)a->in[1], (const float *)a->in[2], (const float *)a->in[3],
                           (T *)a->out[0], partials, rows, cuda_columns_rows(rows), d, offset,
                           (int)(a->accumulate & 1u)));
    });
    return partials == nullptr ? LATHE_OK
                               : cuda_columns_finish(k, a, partials, blocks, d, (float *)a->out[1],
                                                     (a->accumulate & 2u) != 0);
}

const kernel_op cuda_op_rmsnorm = {kernel_check_rmsnorm, run, nullptr, 0};
const kernel_op cuda_op_rmsnorm_bwd = {prepare_bwd, run_bwd, nullptr, 3};

/* RMSNORM and its derivative, over groups of D elements; ADD_RMSNORM also computes a sum first.
 *
 *   ADD_RMSNORM: first x = a + b, rounded, while the row is in registers
 *                (moves 4 elements; ADD followed by RMSNORM moves 5)
 *   y = x * rstd * g,   rstd = 1 / sqrt(mean(x^2) + eps),   g = w (or 1 + w with offset_one)
 *   dx = rstd * (dy*g - xhat * mean(dy*g*xhat)),  dw = sum over rows of dy*xhat,  xhat = x*rstd
 *
 * rows.cuh assigns rows to threads. In the backward a block processes a fixed range of rows, and
 * the blocks' partial sums of dw are added in order. Bound by memory: up to D = 8192 the forward
 * moves 2 elements per element and the backward 3, which is the minimum (w stays in the L1 cache);
 * longer rows are read twice.
 */
#include "base/rows.cuh"

template <typename T, int N, int KIND, int ADDS>
static __global__ void __launch_bounds__(CUDA_THREADS)
    forward(cuda_row_source x, const float *w, T *y, float *rstd, int64_t rows, int64_t d,
            float eps, float offset)
{
    const int64_t n = (int64_t)blockIdx.x * cuda_row_groups<KIND> + cuda_row_group<KIND>();
    if (n >= rows)
        return;
    const cuda_row<T, N, KIND> row(x, n * d, d, ADDS);
    float sum = 0.0f;
    cuda_row_each<KIND, N>(d, [&](int64_t i, int at) {
        const auto v = row.get(i, at);
        for (int j = 0; j < N; j++)
            sum += cuda_float(v.v[j]) * cuda_float(v.v[j]);
    });
    const float r = 1.0f / sqrtf(cuda_row_sum<KIND>(sum) / (float)d + eps);
    if (cuda_row_place<KIND>() == 0)
        rstd[n] = r;
    cuda_row_each<KIND, N>(d, [&](int64_t i, int at) {
        const auto v = row.get(i, at);
        const auto g = cuda_load<N>(w + i);
        cuda_pack<T, N> out;
        for (int j = 0; j < N; j++)
            out.v[j] = cuda_as<T>::from(cuda_float(v.v[j]) * r * (g.v[j] + offset));
        cuda_store(y + n * d + i, out);
    });
}

struct tensors {
    const void *dy, *x;
    const float *w, *rstd;
    void *dx;
    float *partials; /* partial sums of dw; NULL: not wanted */
};

template <typename T, int N, int KIND>
static __global__ void __launch_bounds__(CUDA_THREADS)
    backward(tensors t, int64_t rows, int64_t rows_per_block, int64_t d, float offset,
             int accumulate)
{
    const int64_t first = blockIdx.x * rows_per_block;
    const int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
    cuda_row_columns<N, KIND> dw(t.partials, d);
    for (int64_t n = first + cuda_row_group<KIND>(); n < last; n += cuda_row_groups<KIND>) {
        const cuda_row<T, N, KIND> dy((const T *)t.dy + n * d, d), x((const T *)t.x + n * d, d);
        T *dx = (T *)t.dx + n * d;
        float dot = 0.0f;
        cuda_row_each<KIND, N>(d, [&](int64_t i, int at) {
            const auto g = dy.get(i, at), v = x.get(i, at);
            const auto w = cuda_load<N>(t.w + i);
            for (int j = 0; j < N; j++)
                dot += cuda_float(g.v[j]) * (w.v[j] + offset) * cuda_float(v.v[j]);
        });
        const float r = t.rstd[n], back = cuda_row_sum<KIND>(dot) * r / (float)d * r;
        cuda_row_each<KIND, N>(d, [&](int64_t i, int at) {
            const auto gs = dy.get(i, at), vs = x.get(i, at);
            const auto w = cuda_load<N>(t.w + i);
            auto out = accumulate ? cuda_load<N>((const T *)dx + i) : cuda_pack<T, N>{};
            for (int j = 0; j < N; j++) {
                const float g = cuda_float(gs.v[j]), v = cuda_float(vs.v[j]);
                dw.add(i, at, j, g * (v * r));
                cuda_put(&out.v[j], accumulate, r * (g * (w.v[j] + offset) - v * back));
            }
            cuda_store(dx + i, out);
        });
    }
    dw.finish(d);
}

/* ADDS: 1 for ADD_RMSNORM; inputs and outputs after the first are shifted by one. */
template <int ADDS> static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t d = lathe_desc_count(&k->in[1 + ADDS]), rows = lathe_desc_count(&k->in[0]) / d;
    const cuda_row_source x = {a->in[0], ADDS ? a->in[1] : nullptr, ADDS ? a->out[0] : nullptr};
    const float *w = (const float *)a->in[1 + ADDS];
    const int packs = cuda_aligned(d, k->in[0].dtype, x.x, x.other, x.sum) &&
                      cuda_aligned(d, k->in[0].dtype, w, a->out[ADDS]);
    const float offset = k->attrs.offset_one ? 1.0f : 0.0f;
    if (rows == 0)
        return LATHE_OK;
    CUDA_BY_ROW(k->in[0].dtype, d, packs, T, N, KIND, {
        const int64_t blocks = (rows + cuda_row_groups<KIND> - 1) / cuda_row_groups<KIND>;
        return cuda_run(k, a, blocks, CUDA_THREADS, forward<T, N, KIND, ADDS>, x, w,
                        (T *)a->out[ADDS], (float *)a->out[1 + ADDS], rows, d, k->attrs.eps,
                        offset);
    });
}

static lathe_status prepare_bwd(lathe_kernel *k, int64_t *out_scratch)
{
    if (kernel_has_out(k, 1))
        *out_scratch =
            cuda_columns_scratch(lathe_desc_count(&k->in[3]), lathe_desc_count(&k->in[2]));
    return LATHE_OK;
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t d = lathe_desc_count(&k->in[2]), rows = lathe_desc_count(&k->in[3]);
    const int packs = cuda_aligned(d, k->in[1].dtype, a->in[0], a->in[1], a->in[2], a->out[0]);
    const float offset = k->attrs.offset_one ? 1.0f : 0.0f;
    const int64_t blocks = cuda_columns_parts(rows);
    const tensors t = {a->in[0],
                       a->in[1],
                       (const float *)a->in[2],
                       (const float *)a->in[3],
                       a->out[0],
                       kernel_has_out(k, 1) ? (float *)a->scratch : nullptr};
    CUDA_BY_ROW(k->in[1].dtype, d, packs, T, N, KIND, {
        LATHE_TRY(cuda_run(k, a, blocks, CUDA_THREADS, backward<T, N, KIND>, t, rows,
                           cuda_columns_rows(rows), d, offset, (int)(a->accumulate & 1u)));
    });
    if (t.partials == nullptr)
        return LATHE_OK;
    return cuda_columns_finish(k, a, t.partials, blocks, d, (float *)a->out[1],
                               (a->accumulate & 2u) != 0);
}

const kernel_op CUDA_OP(RMSNORM) = {nullptr, run<0>, nullptr, 0};
const kernel_op CUDA_OP(ADD_RMSNORM) = {nullptr, run<1>, nullptr, 0};
const kernel_op CUDA_OP(RMSNORM_BWD) = {prepare_bwd, run_bwd, nullptr, 3};

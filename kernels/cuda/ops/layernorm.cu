/* LAYERNORM and its derivative, over the last dim; ADD_LAYERNORM also computes a sum first.
 *
 *   ADD_LAYERNORM: first x = a + b, rounded, while the row is in registers
 *                  (moves 4 elements; ADD followed by LAYERNORM moves 5)
 *   y = xhat * w + b,   xhat = (x - mean) * rstd,   rstd = 1 / sqrt(var(x) + eps)
 *   dx = rstd * (g - mean(g) - xhat * mean(g*xhat)),  g = dy*w
 *   dw = sum over rows of dy*xhat,  db = sum over rows of dy
 *
 * rows.cuh assigns rows to threads. In the backward a block processes a fixed range of rows, and
 * the blocks' partial sums of dw and db are added in order. Bound by memory: up to C = 8192 the
 * forward moves 2 elements per element and the backward 3, which is the minimum (w and b stay in
 * the L1 cache); longer rows are read three times by the forward and twice by the backward.
 */
#include "base/rows.cuh"

struct tensors {
    const void *x, *dy;
    const float *w, *b; /* b: NULL, no bias */
    void *out;          /* y or dx */
};

template <typename T, int N, int KIND, int ADDS>
static __global__ void __launch_bounds__(CUDA_THREADS)
    forward(tensors t, cuda_row_source x, float *means, float *rstds, int64_t rows, int64_t c,
            float eps)
{
    const int64_t n = (int64_t)blockIdx.x * cuda_row_groups<KIND> + cuda_row_group<KIND>();
    if (n >= rows)
        return;
    const cuda_row<T, N, KIND> row(x, n * c, c, ADDS);
    float sum = 0.0f, squares = 0.0f;
    cuda_row_each<KIND, N>(c, [&](int64_t i, int at) {
        const auto v = row.get(i, at);
        for (int j = 0; j < N; j++)
            sum += cuda_float(v.v[j]);
    });
    const float mean = cuda_row_sum<KIND>(sum) / (float)c;
    cuda_row_each<KIND, N>(c, [&](int64_t i, int at) {
        const auto v = row.get(i, at);
        for (int j = 0; j < N; j++) {
            const float centred = cuda_float(v.v[j]) - mean;
            squares += centred * centred;
        }
    });
    const float r = 1.0f / sqrtf(cuda_row_sum<KIND>(squares) / (float)c + eps);
    if (cuda_row_place<KIND>() == 0) {
        means[n] = mean;
        rstds[n] = r;
    }
    cuda_row_each<KIND, N>(c, [&](int64_t i, int at) {
        const auto v = row.get(i, at);
        const auto w = cuda_load<N>(t.w + i);
        const auto b = t.b == nullptr ? cuda_pack<float, N>{} : cuda_load<N>(t.b + i);
        cuda_pack<T, N> out;
        for (int j = 0; j < N; j++)
            out.v[j] = cuda_as<T>::from((cuda_float(v.v[j]) - mean) * r * w.v[j] + b.v[j]);
        cuda_store((T *)t.out + n * c + i, out);
    });
}

struct saved {
    const float *mean, *rstd;
};

struct sums {
    float *dw, *db; /* partial sums per block; NULL: not wanted */
};

template <typename T, int N, int KIND>
static __global__ void __launch_bounds__(CUDA_THREADS)
    backward(tensors t, saved s, sums to, int64_t rows, int64_t rows_per_block, int64_t c,
             int accumulate)
{
    const int64_t first = blockIdx.x * rows_per_block;
    const int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
    cuda_row_columns<N, KIND> dw(to.dw, c), db(to.db, c);
    for (int64_t n = first + cuda_row_group<KIND>(); n < last; n += cuda_row_groups<KIND>) {
        const cuda_row<T, N, KIND> dy((const T *)t.dy + n * c, c), x((const T *)t.x + n * c, c);
        const float m = s.mean[n], r = s.rstd[n];
        T *dx = (T *)t.out + n * c;
        float sum = 0.0f, dot = 0.0f;
        cuda_row_each<KIND, N>(c, [&](int64_t i, int at) {
            const auto ds = dy.get(i, at);
            const auto vs = x.get(i, at);
            const auto w = cuda_load<N>(t.w + i);
            for (int j = 0; j < N; j++) {
                const float g = cuda_float(ds.v[j]) * w.v[j];
                sum += g;
                dot += g * ((cuda_float(vs.v[j]) - m) * r);
            }
        });
        const float mean_g = cuda_row_sum<KIND>(sum) / (float)c;
        const float mean_gx = cuda_row_sum<KIND>(dot) / (float)c;
        cuda_row_each<KIND, N>(c, [&](int64_t i, int at) {
            const auto ds = dy.get(i, at);
            const auto vs = x.get(i, at);
            const auto w = cuda_load<N>(t.w + i);
            auto out = accumulate ? cuda_load<N>((const T *)dx + i) : cuda_pack<T, N>{};
            for (int j = 0; j < N; j++) {
                const float d = cuda_float(ds.v[j]), xhat = (cuda_float(vs.v[j]) - m) * r;
                dw.add(i, at, j, d * xhat);
                db.add(i, at, j, d);
                cuda_put(&out.v[j], accumulate, r * (d * w.v[j] - mean_g - xhat * mean_gx));
            }
            cuda_store(dx + i, out);
        });
    }
    dw.finish(c);
    db.finish(c);
}

/* ADDS: 1 for ADD_LAYERNORM; inputs and outputs after the first are shifted by one. */
template <int ADDS> static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t c = lathe_desc_count(&k->in[1 + ADDS]), rows = lathe_desc_count(&k->in[0]) / c;
    const cuda_row_source x = {a->in[0], ADDS ? a->in[1] : nullptr, ADDS ? a->out[0] : nullptr};
    const tensors t = {nullptr, nullptr, (const float *)a->in[1 + ADDS],
                       kernel_has_in(k, 2 + ADDS) ? (const float *)a->in[2 + ADDS] : nullptr,
                       a->out[ADDS]};
    const int packs = cuda_aligned(c, k->in[0].dtype, x.x, x.other, x.sum) &&
                      cuda_aligned(c, k->in[0].dtype, t.w, t.b, t.out);
    if (rows == 0)
        return LATHE_OK;
    CUDA_BY_ROW(k->in[0].dtype, c, packs, T, N, KIND, {
        const int64_t blocks = (rows + cuda_row_groups<KIND> - 1) / cuda_row_groups<KIND>;
        return cuda_run(k, a, blocks, CUDA_THREADS, forward<T, N, KIND, ADDS>, t, x,
                        (float *)a->out[1 + ADDS], (float *)a->out[2 + ADDS], rows, c,
                        k->attrs.eps);
    });
}

static lathe_status prepare_bwd(lathe_kernel *k, int64_t *out_scratch)
{
    const int64_t each =
        cuda_columns_scratch(lathe_desc_count(&k->in[3]), lathe_desc_count(&k->in[2]));
    *out_scratch = each * (kernel_has_out(k, 1) + kernel_has_out(k, 2));
    return LATHE_OK;
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t c = lathe_desc_count(&k->in[2]), rows = lathe_desc_count(&k->in[3]);
    const int64_t blocks = cuda_columns_parts(rows);
    const int packs = cuda_aligned(c, k->in[1].dtype, a->in[0], a->in[1], a->in[2], a->out[0]);
    const tensors t = {a->in[1], a->in[0], (const float *)a->in[2], nullptr, a->out[0]};
    const saved s = {(const float *)a->in[3], (const float *)a->in[4]};
    float *scratch = (float *)a->scratch;
    sums to = {nullptr, nullptr};
    if (kernel_has_out(k, 1)) {
        to.dw = scratch;
        scratch += blocks * c;
    }
    if (kernel_has_out(k, 2))
        to.db = scratch;
    CUDA_BY_ROW(k->in[1].dtype, c, packs, T, N, KIND, {
        LATHE_TRY(cuda_run(k, a, blocks, CUDA_THREADS, backward<T, N, KIND>, t, s, to, rows,
                           cuda_columns_rows(rows), c, (int)(a->accumulate & 1u)));
    });
    if (to.dw != nullptr)
        LATHE_TRY(cuda_columns_finish(k, a, to.dw, blocks, c, (float *)a->out[1],
                                      (a->accumulate & 2u) != 0));
    if (to.db != nullptr)
        LATHE_TRY(cuda_columns_finish(k, a, to.db, blocks, c, (float *)a->out[2],
                                      (a->accumulate & 4u) != 0));
    return LATHE_OK;
}

const kernel_op CUDA_OP(LAYERNORM) = {nullptr, run<0>, nullptr, 0};
const kernel_op CUDA_OP(ADD_LAYERNORM) = {nullptr, run<1>, nullptr, 0};
const kernel_op CUDA_OP(LAYERNORM_BWD) = {prepare_bwd, run_bwd, nullptr, 7};

/* SOFTMAX over rows and its derivative. rows.cuh assigns rows to threads; each row is read once.
 *
 *   y = exp(x - max x) / sum of exp(x - max x)
 *   dx = y * (dy - sum of dy * y)
 */
#include "base/rows.cuh"

template <typename T, int N, int KIND>
static __global__ void __launch_bounds__(CUDA_THREADS)
    forward(const T *x, T *y, int64_t rows, int64_t d)
{
    const int64_t r = (int64_t)blockIdx.x * cuda_row_groups<KIND> + cuda_row_group<KIND>();
    if (r >= rows)
        return;
    const cuda_row<T, N, KIND> row(x + r * d, d);
    float most = -INFINITY, sum = 0.0f;
    cuda_row_each<KIND, N>(d, [&](int64_t i, int at) {
        const auto v = row.get(i, at);
        for (int j = 0; j < N; j++)
            most = cuda_float(v.v[j]) > most ? cuda_float(v.v[j]) : most;
    });
    most = cuda_row_max<KIND>(most);
    cuda_row_each<KIND, N>(d, [&](int64_t i, int at) {
        const auto v = row.get(i, at);
        for (int j = 0; j < N; j++)
            sum += expf(cuda_float(v.v[j]) - most);
    });
    const float factor = 1.0f / cuda_row_sum<KIND>(sum);
    cuda_row_each<KIND, N>(d, [&](int64_t i, int at) {
        auto v = row.get(i, at);
        for (int j = 0; j < N; j++)
            v.v[j] = cuda_as<T>::from(expf(cuda_float(v.v[j]) - most) * factor);
        cuda_store(y + r * d + i, v);
    });
}

template <typename T, int N, int KIND>
static __global__ void __launch_bounds__(CUDA_THREADS)
    backward(const T *dy, const T *y, T *dx, int64_t rows, int64_t d, int accumulate)
{
    const int64_t r = (int64_t)blockIdx.x * cuda_row_groups<KIND> + cuda_row_group<KIND>();
    if (r >= rows)
        return;
    const cuda_row<T, N, KIND> gs(dy + r * d, d), ys(y + r * d, d);
    float dot = 0.0f;
    cuda_row_each<KIND, N>(d, [&](int64_t i, int at) {
        const auto g = gs.get(i, at), v = ys.get(i, at);
        for (int j = 0; j < N; j++)
            dot += cuda_float(g.v[j]) * cuda_float(v.v[j]);
    });
    dot = cuda_row_sum<KIND>(dot);
    cuda_row_each<KIND, N>(d, [&](int64_t i, int at) {
        const auto g = gs.get(i, at), v = ys.get(i, at);
        auto out = accumulate ? cuda_load<N>((const T *)dx + r * d + i) : cuda_pack<T, N>{};
        for (int j = 0; j < N; j++)
            cuda_put(&out.v[j], accumulate, cuda_float(v.v[j]) * (cuda_float(g.v[j]) - dot));
        cuda_store(dx + r * d + i, out);
    });
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *x = &k->in[0];
    const int64_t d = x->dims[x->rank - 1], n = lathe_desc_count(x), rows = n > 0 ? n / d : 0;
    const int packs = cuda_aligned(d, x->dtype, a->in[0], a->out[0]);
    if (rows == 0)
        return LATHE_OK;
    CUDA_BY_ROW(x->dtype, d, packs, T, N, KIND, {
        const int64_t blocks = (rows + cuda_row_groups<KIND> - 1) / cuda_row_groups<KIND>;
        return cuda_run(k, a, blocks, CUDA_THREADS, forward<T, N, KIND>, (const T *)a->in[0],
                        (T *)a->out[0], rows, d);
    });
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *x = &k->in[0];
    const int64_t d = x->dims[x->rank - 1], n = lathe_desc_count(x), rows = n > 0 ? n / d : 0;
    const int packs = cuda_aligned(d, x->dtype, a->in[0], a->in[1], a->out[0]);
    if (rows == 0)
        return LATHE_OK;
    CUDA_BY_ROW(x->dtype, d, packs, T, N, KIND, {
        const int64_t blocks = (rows + cuda_row_groups<KIND> - 1) / cuda_row_groups<KIND>;
        return cuda_run(k, a, blocks, CUDA_THREADS, backward<T, N, KIND>, (const T *)a->in[0],
                        (const T *)a->in[1], (T *)a->out[0], rows, d, (int)(a->accumulate & 1u));
    });
}

const kernel_op CUDA_OP(SOFTMAX) = {nullptr, run, nullptr, 0};
const kernel_op CUDA_OP(SOFTMAX_BWD) = {nullptr, run_bwd, nullptr, 1};

/* HEAD_SCORES: y f32[N,V] = softcap(x c[N,V]) and lse f64[N] = log of the sum of exp(y).
 *
 * A block processes a row. The sum is that of head_softmax.cuh, in the same order, so the
 * log-probabilities are those of HEAD_LOGPROB, bit for bit. Bound by memory: reads x twice, the
 * second time from the cache.
 */
#include "head/head_softmax.cuh"

template <typename T, int PADDED>
static __global__ void __launch_bounds__(CUDA_THREADS)
    scores(const T *x, float *y, double *lse, int64_t v, float cap)
{
    const T *row = x + (int64_t)blockIdx.x * v;
    const head_seen seen = head_observe<T, 0, PADDED>(row, v, cap);
    float max;
    const double sum = head_lse(seen, &max);
    if (threadIdx.x == 0)
        lse[blockIdx.x] = sum;
    for (int64_t i = threadIdx.x; i < v; i += blockDim.x)
        y[(int64_t)blockIdx.x * v + i] = head_logit(row[i], cap);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = k->in[0].dims[0], v = k->in[0].dims[1];
    const float cap = k->attrs.softcap;
    CUDA_BY_DTYPE(k->in[0].dtype, T, {
        const T *x = (const T *)a->in[0];
        float *y = (float *)a->out[0];
        double *lse = (double *)a->out[1];
        if (cuda_aligned(v, k->in[0].dtype, x)) /* rows are whole packs */
            return cuda_run(k, a, n, CUDA_THREADS, scores<T, 1>, x, y, lse, v, cap);
        return cuda_run(k, a, n, CUDA_THREADS, scores<T, 0>, x, y, lse, v, cap);
    });
}

const kernel_op CUDA_OP(HEAD_SCORES) = {nullptr, run, nullptr, 0};

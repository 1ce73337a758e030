/* ATTENTION_SINKS_BWD: the gradient of the attention sinks.
 *
 *   dsinks[h] = - sum over rows b and queries i of exp(sinks[h] - lse[b,h,i]) * (do . o)[b,i,h]
 *
 * A block per head adds its queries (sums.cuh); a thread reads the rows of a query's head. Reads
 * do and o once; with few heads it leaves most of the GPU idle, beside the backward of attention it
 * is short.
 */
#include "base/sums.cuh"

template <typename T>
static __global__ void __launch_bounds__(CUDA_THREADS)
    sum_heads(const T *d_o, const T *o, const float *lse, const float *sinks, float *out,
              int64_t tokens, int64_t t_q, int64_t size, int accumulate)
{
    const int64_t h = blockIdx.x, heads = gridDim.x;
    const float sink = sinks[h];
    const double sum = cuda_range_sum(0, tokens, [&](int64_t n) {
        const int64_t row = (n * heads + h) * size;
        float dot = 0.0f;
        for (int64_t d = 0; d < size; d++)
            dot += cuda_float(d_o[row + d]) * cuda_float(o[row + d]);
        return (double)(-expf(sink - lse[(n / t_q * heads + h) * t_q + n % t_q]) * dot);
    });
    if (threadIdx.x == 0)
        cuda_put(out + h, accumulate, (float)sum);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t tokens = k->in[1].dims[0], t_q = tokens / k->attrs.batch;
    CUDA_BY_DTYPE(k->in[1].dtype, T, {
        return cuda_run(k, a, k->attrs.n_heads, CUDA_THREADS, sum_heads<T>, (const T *)a->in[0],
                        (const T *)a->in[1], (const float *)a->in[2], (const float *)a->in[3],
                        (float *)a->out[0], tokens, t_q, (int64_t)k->attrs.head_dim,
                        (int)(a->accumulate & 1u));
    });
}

const kernel_op CUDA_OP(ATTENTION_SINKS_BWD) = {nullptr, run, nullptr, 1};

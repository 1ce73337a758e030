/* ATTENTION_SINKS_BWD: the gradient of the attention sinks.
 *
 *   dsinks[h] = - sum over rows b and queries i of exp(sinks[h] - lse[b,h,i]) * (do . o)[b,i,h]
 *
 * A head is one piece of work: its queries are added in order, in f64, so that the bits do not
 * depend on the threads.
 */
#include <math.h>

#include "base/cpu.h"
#include "base/element.h"

typedef struct sinks_job {
    const lathe_kernel *k;
    const lathe_kernel_args *a;
} sinks_job;

CPU_INLINE float dot_of(const void *x, const void *y, int64_t at, int64_t n, int32_t dtype)
{
    float sum[8] = {0.0f}, total = 0.0f; /* eight independent sums: one vector */
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int64_t j = 0; j < 8; j++)
            sum[j] += ld(x, at + i + j, dtype) * ld(y, at + i + j, dtype);
    for (; i < n; i++)
        total += ld(x, at + i, dtype) * ld(y, at + i, dtype);
    for (int64_t j = 0; j < 8; j++)
        total += sum[j];
    return total;
}

CPU_INLINE void head_sums(const sinks_job *job, int64_t begin, int64_t end, int32_t dtype)
{
    const lathe_op_attrs *at = &job->k->attrs;
    const int64_t heads = at->n_heads, size = at->head_dim;
    const int64_t t_q = job->k->in[1].dims[0] / at->batch;
    const float *lse = job->a->in[2], *sinks = job->a->in[3];
    for (int64_t h = begin; h < end; h++) {
        double sum = 0.0;
        for (int64_t b = 0; b < at->batch; b++)
            for (int64_t i = 0; i < t_q; i++) {
                const float share = expf(sinks[h] - lse[(b * heads + h) * t_q + i]);
                const int64_t row = ((b * t_q + i) * heads + h) * size;
                sum -= (double)(share * dot_of(job->a->in[0], job->a->in[1], row, size, dtype));
            }
        st(job->a->out[0], h, LATHE_F32, (job->a->accumulate & 1u) != 0, (float)sum);
    }
}

static void heads_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const sinks_job *job = arg;
    (void)worker;
    CPU_BY_DTYPE(job->k->in[1].dtype, head_sums, job, begin, end);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    sinks_job job = {k, a};
    k->host->parallel_for(k->attrs.n_heads, 1, heads_range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(ATTENTION_SINKS_BWD) = {NULL, run, NULL, 1};

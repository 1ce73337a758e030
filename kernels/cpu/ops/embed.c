/* EMBED and its derivative.
 *
 *   y[n] = W[tokens[n]]              tokens i32[N], W c[V,C], y c[N,C]
 *   dW[tokens[n]] += dy[n]           in token order; dW f32[V,C]
 */
#include "base/cpu.h"
#include "base/element.h"

#define COLUMNS 64 /* of dW per chunk; every chunk reads all tokens in order */

typedef struct embed_job {
    const int32_t *tokens;
    const void *in;
    void *out;
    int64_t n, c;
    int32_t dtype;
} embed_job;

static lathe_status check_tokens(const lathe_kernel *k, const int32_t *tokens, int64_t n,
                                 int64_t vocabulary)
{
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= vocabulary)
            return lathe_fail(
                k->host, LATHE_E_ARG, "%s: token %d at %lld is outside the vocabulary of %lld",
                kernel_op_name(k), (int)tokens[i], (long long)i, (long long)vocabulary);
    return LATHE_OK;
}

static void gather_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const embed_job *job = arg;
    const size_t bytes = (size_t)(job->c * lathe_dtype_bytes(job->dtype));
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        memcpy(at_mut(job->out, i * job->c, job->dtype),
               at(job->in, job->tokens[i] * job->c, job->dtype), bytes);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]), c = k->in[1].dims[1];
    LATHE_TRY(check_tokens(k, a->in[0], n, k->in[1].dims[0]));
    embed_job job = {a->in[0], a->in[1], a->out[0], n, c, k->in[1].dtype};
    k->host->parallel_for(n, cpu_row_grain(c), gather_range, &job);
    return LATHE_OK;
}

CPU_INLINE void add_row(float *dw, const void *dy, int64_t n, int32_t dtype)
{
#pragma GCC ivdep
    for (int64_t j = 0; j < n; j++)
        dw[j] += ld(dy, j, dtype);
}

static void scatter_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const embed_job *job = arg;
    float *dw = job->out;
    (void)worker;
    for (int64_t i = 0; i < job->n; i++)
        CPU_BY_DTYPE(job->dtype, add_row, dw + job->tokens[i] * job->c + begin,
                     at(job->in, i * job->c + begin, job->dtype), end - begin);
}

static void zero_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const embed_job *job = arg;
    (void)worker;
    memset((float *)job->out + begin, 0, (size_t)(end - begin) * sizeof(float));
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[1]), c = k->out[0].dims[1];
    LATHE_TRY(check_tokens(k, a->in[1], n, k->out[0].dims[0]));
    embed_job job = {a->in[1], a->in[0], a->out[0], n, c, k->in[0].dtype};
    if (!(a->accumulate & 1u))
        k->host->parallel_for(lathe_desc_count(&k->out[0]), (int64_t)1 << 18, zero_range, &job);
    k->host->parallel_for(c, COLUMNS, scatter_range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(EMBED) = {NULL, run, NULL, 0};
const kernel_op CPU_OP(EMBED_BWD) = {NULL, run_bwd, NULL, 1};

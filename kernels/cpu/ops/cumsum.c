/* CUMSUM: y[j] = x[0] + .. + x[j] for each row, in f32; with `inverse`, y[j] = x[j] + .. +
 * x[d-1]. */
#include "base/cpu.h"
#include "base/element.h"

typedef struct cumsum_job {
    const void *x;
    void *y;
    int64_t d;
    int32_t dtype, inverse, accumulate;
} cumsum_job;

CPU_INLINE void row(const cumsum_job *job, int64_t first, int32_t dtype)
{
    float sum = 0.0f;
    for (int64_t j = 0; j < job->d; j++) {
        const int64_t i = first + (job->inverse ? job->d - 1 - j : j);
        sum += ld(job->x, i, dtype);
        st(job->y, i, dtype, job->accumulate, sum);
    }
}

static void range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const cumsum_job *job = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        CPU_BY_DTYPE(job->dtype, row, job, r * job->d);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *x = &k->in[0];
    const int64_t n = lathe_desc_count(x);
    cumsum_job job = {a->in[0], a->out[0],        x->dims[x->rank - 1],
                      x->dtype, k->attrs.inverse, (a->accumulate & 1u) != 0};
    if (n > 0)
        k->host->parallel_for(n / job.d, cpu_row_grain(job.d), range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(CUMSUM) = {NULL, run, NULL, 1};

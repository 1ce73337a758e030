/* CLAMP: y = x, limited to [-limit[start], limit[start]], or to [alpha, beta]. A NaN stays NaN; y
 * may be x. CLAMP_BWD: dx = dy where x is within the bounds, else 0. */
#include "base/cpu.h"
#include "base/element.h"

typedef struct clamp_job {
    const void *dy, *x; /* dy: for CLAMP_BWD */
    void *out;
    float low, high;
    int32_t dtype;
    int accumulate;
} clamp_job;

CPU_INLINE void clamp(const clamp_job *job, int64_t begin, int64_t end, int32_t dtype)
{
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        const float x = ld(job->x, i, dtype);
        st(job->out, i, dtype, 0, x > job->high ? job->high : x < job->low ? job->low : x);
    }
}

CPU_INLINE void clamp_bwd(const clamp_job *job, int64_t begin, int64_t end, int32_t dtype)
{
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        const float x = ld(job->x, i, dtype);
        st(job->out, i, dtype, job->accumulate,
           x > job->high || x < job->low ? 0.0f : ld(job->dy, i, dtype));
    }
}

static void range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const clamp_job *job = arg;
    (void)worker;
    if (job->dy == NULL)
        CPU_BY_DTYPE(job->dtype, clamp, job, begin, end);
    else
        CPU_BY_DTYPE(job->dtype, clamp_bwd, job, begin, end);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int32_t at_x = k->op_id == LATHE_OP_CLAMP ? 0 : 1;
    const float *limit =
        kernel_has_in(k, at_x + 1) ? (const float *)a->in[at_x + 1] + k->attrs.start : NULL;
    clamp_job job = {at_x == 0 ? NULL : a->in[0],
                     a->in[at_x],
                     a->out[0],
                     limit != NULL ? -*limit : (float)k->attrs.alpha,
                     limit != NULL ? *limit : (float)k->attrs.beta,
                     k->in[0].dtype,
                     (a->accumulate & 1u) != 0};
    k->host->parallel_for(lathe_desc_count(&k->in[0]), CPU_GRAIN, range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(CLAMP) = {NULL, run, NULL, 0};
const kernel_op CPU_OP(CLAMP_BWD) = {NULL, run, NULL, 1};

/* CLAMP: y = x, kept within -limit[start] and limit[start]. NaN stays. May run in place. */
#include "cpu.h"
#include "element.h"

typedef struct clamp_job {
    const void *x;
    void *y;
    float limit;
    int32_t dtype;
} clamp_job;

CPU_INLINE void clamp(const clamp_job *job, int64_t begin, int64_t end, int32_t dtype)
{
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        const float x = ld(job->x, i, dtype);
        st(job->y, i, dtype, 0, x > job->limit ? job->limit : x < -job->limit ? -job->limit : x);
    }
}

static void range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const clamp_job *job = arg;
    (void)worker;
    CPU_BY_DTYPE(job->dtype, clamp, job, begin, end);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    clamp_job job = {a->in[0], a->out[0], ((const float *)a->in[1])[k->attrs.start],
                     k->in[0].dtype};
    k->host->parallel_for(lathe_desc_count(&k->in[0]), CPU_GRAIN, range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(CLAMP) = {NULL, run, NULL, 0};

/* HEAD_SCORES: y f32[N,V] = softcap(x c[N,V]) and lse f64[N] = log of the sum of exp(y). The sum
 * goes over the blocks of the vocabulary that head_logprob.c computes, in the same order. */
#include <math.h>

#include "base/element.h"
#include "head/head_softmax.h"

typedef struct scores_job {
    const void *x;
    float *y;
    double *lse;
    int64_t v, width;
    int32_t dtype;
    float softcap;
} scores_job;

static void score_row(const scores_job *job, int64_t r)
{
    static const int32_t any = 0; /* a target: rows without one are skipped */
    head_row state = {-INFINITY, 0.0f, 0.0, -INFINITY, -1};
    for (int64_t first = 0; first < job->v; first += job->width) {
        const int64_t left = job->v - first;
        const void *x = at(job->x, r * job->v + first, job->dtype);
        head_block block = {.logits = (void *)(uintptr_t)x,
                            .rows = 1,
                            .width = left < job->width ? left : job->width,
                            .first = first,
                            .dtype = job->dtype,
                            .softcap = job->softcap,
                            .targets = &any,
                            .state = &state};
        cpu_head_observe_row(&block);
        cpu_head_cap(&block, job->y + r * job->v + first);
    }
    job->lse[r] = (double)state.max + log(state.sum);
}

static void range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        score_row(arg, r);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *x = &k->in[0];
    scores_job job = {a->in[0], a->out[0],       a->out[1], x->dims[1], cpu_head_width(x->dims[1]),
                      x->dtype, k->attrs.softcap};
    k->host->parallel_for(x->dims[0], 1, range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(HEAD_SCORES) = {NULL, run, NULL, 0};

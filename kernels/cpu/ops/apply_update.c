/* APPLY_UPDATE: p' = p - s[start] * (alpha*u + beta*p), in place; p f32, u f32 or the compute
 * dtype. */
#include "base/cpu.h"
#include "base/element.h"

typedef struct update_job {
    const float *p;
    const void *u;
    float *out;
    float s, alpha, beta;
    int32_t u_dtype;
} update_job;

static void range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const update_job *job = arg;
    float b[CPU_TILE];
    (void)worker;
    for (int64_t i = begin; i < end; i += CPU_TILE) {
        const int64_t n = end - i < CPU_TILE ? end - i : CPU_TILE;
        const float *u = tile_in(b, job->u, job->u_dtype, i, n);
        const float *p = job->p + i;
        float *out = job->out + i;
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++)
            out[j] = p[j] - job->s * (job->alpha * u[j] + job->beta * p[j]);
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    update_job job = {a->in[0],
                      a->in[1],
                      a->out[0],
                      ((const float *)a->in[2])[k->attrs.start],
                      (float)k->attrs.alpha,
                      (float)k->attrs.beta,
                      k->in[1].dtype};
    k->host->parallel_for(lathe_desc_count(&k->in[0]), CPU_GRAIN, range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(APPLY_UPDATE) = {NULL, run, NULL, 0};

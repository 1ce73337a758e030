/* SWIGLU_CLAMPED and its derivative, pair by pair.
 *
 *   g = min(x[2j], beta), u = x[2j+1] limited to -beta .. beta, s = sigmoid(alpha g)
 *   y = g * s * (u + 1)
 *   dx[2j] = dy * (u + 1) * s * (1 + alpha g (1 - s)) where x[2j] <= beta, else 0
 *   dx[2j+1] = dy * g * s where -beta <= x[2j+1] <= beta, else 0
 */
#include "base/cpu.h"
#include "base/vecmath.h"

typedef struct clamped_job {
    const void *x, *dy;
    void *out; /* y or dx */
    float alpha, beta;
    int32_t dtype, accumulate;
} clamped_job;

CPU_INLINE void forward_pairs(const clamped_job *j, int64_t begin, int64_t end, int32_t dtype)
{
    const float alpha = j->alpha, beta = j->beta;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        const float gate = ld(j->x, 2 * i, dtype), up = ld(j->x, 2 * i + 1, dtype);
        const float g = gate > beta ? beta : gate;
        const float u = up > beta ? beta : up < -beta ? -beta : up;
        st(j->out, i, dtype, 0, g * cpu_sigmoid(alpha * g) * (u + 1.0f));
    }
}

CPU_INLINE void backward_pairs(const clamped_job *j, int64_t begin, int64_t end, int32_t dtype)
{
    const float alpha = j->alpha, beta = j->beta;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        const float gate = ld(j->x, 2 * i, dtype), up = ld(j->x, 2 * i + 1, dtype);
        const float g = gate > beta ? beta : gate, dy = ld(j->dy, i, dtype);
        const float u = up > beta ? beta : up < -beta ? -beta : up;
        const float s = cpu_sigmoid(alpha * g);
        const float dg = dy * (u + 1.0f) * s * (1.0f + alpha * g * (1.0f - s));
        const float du = dy * g * s;
        st(j->out, 2 * i, dtype, j->accumulate, gate > beta ? 0.0f : dg);
        st(j->out, 2 * i + 1, dtype, j->accumulate, up > beta || up < -beta ? 0.0f : du);
    }
}

static void forward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const clamped_job *j = arg;
    (void)worker;
    CPU_BY_DTYPE(j->dtype, forward_pairs, j, begin, end);
}

static void backward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const clamped_job *j = arg;
    (void)worker;
    CPU_BY_DTYPE(j->dtype, backward_pairs, j, begin, end);
}

static clamped_job job_of(const lathe_kernel *k, const lathe_kernel_args *a, int32_t x)
{
    const clamped_job job = {.x = a->in[x],
                             .dy = a->in[0],
                             .out = a->out[0],
                             .alpha = (float)k->attrs.alpha,
                             .beta = (float)k->attrs.beta,
                             .dtype = k->in[0].dtype,
                             .accumulate = (a->accumulate & 1u) != 0};
    return job;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    clamped_job job = job_of(k, a, 0);
    k->host->parallel_for(lathe_desc_count(&k->out[0]), CPU_GRAIN, forward_range, &job);
    return LATHE_OK;
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    clamped_job job = job_of(k, a, 1);
    k->host->parallel_for(lathe_desc_count(&k->in[0]), CPU_GRAIN, backward_range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(SWIGLU_CLAMPED) = {NULL, run, NULL, 0};
const kernel_op CPU_OP(SWIGLU_CLAMPED_BWD) = {NULL, run_bwd, NULL, 1};

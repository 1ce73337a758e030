/* SOFTMAX over rows and its derivative.
 *
 *   y = exp(x - max x) / sum of exp(x - max x)
 *   dx = y * (dy - sum of dy * y)
 */
#include "base/cpu.h"
#include "base/vecmath.h"

typedef struct softmax_job {
    const void *x, *y; /* SOFTMAX_BWD: dy and y */
    void *out;
    int64_t d;
    int32_t dtype;
    int accumulate;
} softmax_job;

CPU_INLINE void forward_row(const softmax_job *job, int64_t first, int32_t dtype)
{
    const void *x = at(job->x, first, dtype);
    void *y = at_mut(job->out, first, dtype);
    float most = ld(x, 0, dtype), sum = 0.0f;
    for (int64_t i = 1; i < job->d; i++)
        most = ld(x, i, dtype) > most ? ld(x, i, dtype) : most;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < job->d; i++)
        sum += cpu_exp(ld(x, i, dtype) - most);
    const float factor = 1.0f / sum;
#pragma GCC ivdep
    for (int64_t i = 0; i < job->d; i++)
        st(y, i, dtype, 0, cpu_exp(ld(x, i, dtype) - most) * factor);
}

CPU_INLINE void backward_row(const softmax_job *job, int64_t first, int32_t dtype)
{
    const void *dy = at(job->x, first, dtype), *y = at(job->y, first, dtype);
    void *dx = at_mut(job->out, first, dtype);
    float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < job->d; i++)
        dot += ld(dy, i, dtype) * ld(y, i, dtype);
#pragma GCC ivdep
    for (int64_t i = 0; i < job->d; i++)
        st(dx, i, dtype, job->accumulate, ld(y, i, dtype) * (ld(dy, i, dtype) - dot));
}

static void range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const softmax_job *job = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        if (job->y == NULL)
            CPU_BY_DTYPE(job->dtype, forward_row, job, r * job->d);
        else
            CPU_BY_DTYPE(job->dtype, backward_row, job, r * job->d);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *x = &k->in[0];
    const int64_t d = x->dims[x->rank - 1], n = lathe_desc_count(x);
    softmax_job job = {a->in[0],  k->op_id == LATHE_OP_SOFTMAX ? NULL : a->in[1],
                       a->out[0], d,
                       x->dtype,  (a->accumulate & 1u) != 0};
    if (n > 0)
        k->host->parallel_for(n / d, cpu_row_grain(d), range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(SOFTMAX) = {NULL, run, NULL, 0};
const kernel_op CPU_OP(SOFTMAX_BWD) = {NULL, run, NULL, 1};

/* SUM, ROW_SUM, their derivative BROADCAST, and L2_NORMALIZE. Sums run in f64.
 *
 *   SUM           y = sum of x, in order
 *   ROW_SUM       y[r] = sum of x[r*T .. r*T+T-1], T = count
 *   BROADCAST     y[i] = x[i / count]
 *   L2_NORMALIZE  y = x / max(|x|_2, eps)
 */
#include <math.h>

#include "base/cpu.h"
#include "base/element.h"

typedef struct reduce_job {
    const float *x;
    void *y;
    double *partials;
    int64_t count;
    float factor;
    int32_t y_dtype, accumulate;
} reduce_job;

static double sum_in_order(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    return sum;
}

static lathe_status run_sum(lathe_kernel *k, const lathe_kernel_args *a)
{
    st(a->out[0], 0, LATHE_F32, (a->accumulate & 1u) != 0,
       (float)sum_in_order(a->in[0], lathe_desc_count(&k->in[0])));
    return LATHE_OK;
}

static void row_sum_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const reduce_job *job = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        st(job->y, r, LATHE_F32, job->accumulate,
           (float)sum_in_order(job->x + r * job->count, job->count));
}

static lathe_status run_row_sum(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t count = k->attrs.count;
    reduce_job job = {a->in[0], a->out[0], NULL, count, 0.0f, 0, (a->accumulate & 1u) != 0};
    k->host->parallel_for(lathe_desc_count(&k->out[0]), cpu_row_grain(count), row_sum_range, &job);
    return LATHE_OK;
}

static void broadcast_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const reduce_job *job = arg;
    float *y = job->y;
    (void)worker;
    for (int64_t i = begin; i < end;) {
        const int64_t row = i / job->count;
        const int64_t stop = (row + 1) * job->count < end ? (row + 1) * job->count : end;
        const float v = job->x[row];
        for (; i < stop; i++)
            y[i] = job->accumulate ? y[i] + v : v;
    }
}

static lathe_status run_broadcast(lathe_kernel *k, const lathe_kernel_args *a)
{
    reduce_job job = {
        a->in[0], a->out[0], NULL, k->attrs.count, 0.0f, 0, (a->accumulate & 1u) != 0};
    k->host->parallel_for(lathe_desc_count(&k->out[0]), CPU_GRAIN, broadcast_range, &job);
    return LATHE_OK;
}

static void squares_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const reduce_job *job = arg;
    double sum = 0.0;
    (void)worker;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = begin; i < end; i++)
        sum += (double)job->x[i] * (double)job->x[i];
    job->partials[begin / CPU_GRAIN] = sum;
}

static void normalize_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const reduce_job *job = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        st(job->y, i, job->y_dtype, job->accumulate, job->x[i] * job->factor);
}

static lathe_status prepare_normalize(lathe_kernel *k, int64_t *out_scratch)
{
    const int64_t n = lathe_desc_count(&k->in[0]);
    *out_scratch = (n + CPU_GRAIN - 1) / CPU_GRAIN * (int64_t)sizeof(double);
    return LATHE_OK;
}

static lathe_status run_normalize(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]);
    reduce_job job = {
        a->in[0], a->out[0], a->scratch, 0, 0.0f, k->out[0].dtype, (a->accumulate & 1u) != 0};
    k->host->parallel_for(n, CPU_GRAIN, squares_range, &job);
    double sum = 0.0;
    for (int64_t c = 0; c < (n + CPU_GRAIN - 1) / CPU_GRAIN; c++)
        sum += job.partials[c];
    const double norm = sqrt(sum), eps = (double)k->attrs.eps;
    job.factor = (float)(1.0 / (norm > eps ? norm : eps));
    k->host->parallel_for(n, CPU_GRAIN, normalize_range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(SUM) = {NULL, run_sum, NULL, 1};
const kernel_op CPU_OP(ROW_SUM) = {NULL, run_row_sum, NULL, 1};
const kernel_op CPU_OP(BROADCAST) = {NULL, run_broadcast, NULL, 1};
const kernel_op CPU_OP(L2_NORMALIZE) = {prepare_normalize, run_normalize, NULL, 1};

/* RMSNORM and its derivative, over groups of D elements; ADD_RMSNORM also computes a sum first.
 *
 *   ADD_RMSNORM: first x = a + b, rounded, row by row
 *   y = x * rstd * g,   rstd = 1 / sqrt(mean(x^2) + eps),   g = w (or 1 + w with offset_one)
 *   dx = rstd * (dy*g - xhat * mean(dy*g*xhat)),  dw = sum over rows of dy*xhat,  xhat = x*rstd
 */
#include <math.h>

#include "base/element.h"
#include "products/column_sums.h"

#define DW_PARTIALS 64 /* maximum; the partial sums of dw are added in order */

typedef struct norm_job {
    const lathe_kernel *k;
    const lathe_kernel_args *a;
    int64_t d, rows, grain;
    float *partials; /* [chunks, d]; NULL: no dw */
    int32_t
        adds; /* 1: out[0] = in[0] + in[1], and the other inputs and outputs are shifted by one */
} norm_job;

CPU_INLINE void forward_row(const void *x, const float *w, void *y, float *rstd, int64_t d,
                            float eps, float offset, int32_t dtype)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < d; i++) {
        const float v = ld(x, i, dtype);
        sum += v * v;
    }
    const float r = 1.0f / sqrtf(sum / (float)d + eps);
    *rstd = r;
#pragma GCC ivdep
    for (int64_t i = 0; i < d; i++)
        st(y, i, dtype, 0, ld(x, i, dtype) * r * (w[i] + offset));
}

static void forward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const norm_job *job = arg;
    const lathe_kernel *k = job->k;
    const int32_t dtype = k->in[0].dtype;
    const float offset = k->attrs.offset_one ? 1.0f : 0.0f;
    const void *const *in = job->a->in + job->adds;
    void *const *out = job->a->out + job->adds;
    float *rstd = out[1];
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const int64_t first = r * job->d;
        const void *x = at(job->a->in[0], first, dtype);
        if (job->adds) {
            void *sum = at_mut(job->a->out[0], first, dtype);
            CPU_BY_DTYPE(dtype, add_elements, x, at(job->a->in[1], first, dtype), sum, job->d);
            x = sum;
        }
        CPU_BY_DTYPE(dtype, forward_row, x, in[1], at_mut(out[0], first, dtype), rstd + r, job->d,
                     k->attrs.eps, offset);
    }
}

static lathe_status forward(lathe_kernel *k, const lathe_kernel_args *a, int32_t adds)
{
    const int64_t d = lathe_desc_count(&k->in[1 + adds]);
    norm_job job = {.k = k, .a = a, .d = d, .rows = lathe_desc_count(&k->in[0]) / d, .adds = adds};
    k->host->parallel_for(job.rows, cpu_row_grain(d), forward_range, &job);
    return LATHE_OK;
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    return forward(k, a, 0);
}

static lathe_status run_add(lathe_kernel *k, const lathe_kernel_args *a)
{
    return forward(k, a, 1);
}

/* Computes dx of one row, and adds dy*xhat to dw (f32, may be NULL). */
CPU_INLINE void backward_row(const void *dy, const void *x, const float *w, float r, void *dx,
                             int accumulate, float *dw, int64_t d, float offset, int32_t dtype)
{
    float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < d; i++)
        dot += ld(dy, i, dtype) * (w[i] + offset) * ld(x, i, dtype);
    const float mean = dot * r / (float)d; /* of dy*g*xhat */
    const float back = mean * r;
    if (dw != NULL)
#pragma GCC ivdep
        for (int64_t i = 0; i < d; i++)
            dw[i] += ld(dy, i, dtype) * (ld(x, i, dtype) * r);
    if (accumulate)
#pragma GCC ivdep
        for (int64_t i = 0; i < d; i++)
            st(dx, i, dtype, 1, r * (ld(dy, i, dtype) * (w[i] + offset) - ld(x, i, dtype) * back));
    else
#pragma GCC ivdep
        for (int64_t i = 0; i < d; i++)
            st(dx, i, dtype, 0, r * (ld(dy, i, dtype) * (w[i] + offset) - ld(x, i, dtype) * back));
}

static void backward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const norm_job *job = arg;
    const lathe_kernel *k = job->k;
    const lathe_kernel_args *a = job->a;
    const int32_t dtype = k->in[1].dtype;
    const float offset = k->attrs.offset_one ? 1.0f : 0.0f;
    const float *rstd = a->in[3];
    float *dw = job->partials == NULL ? NULL : job->partials + begin / job->grain * job->d;
    (void)worker;
    if (dw != NULL)
        memset(dw, 0, (size_t)job->d * sizeof *dw);
    for (int64_t r = begin; r < end; r++)
        CPU_BY_DTYPE(dtype, backward_row, at(a->in[0], r * job->d, dtype),
                     at(a->in[1], r * job->d, dtype), a->in[2], rstd[r],
                     at_mut(a->out[0], r * job->d, dtype), (a->accumulate & 1u) != 0, dw, job->d,
                     offset);
}

/* Rows per chunk when dw is wanted; depends only on the shape, and limits the number of partial
 * sums. */
static int64_t dw_grain(int64_t rows, int64_t d)
{
    const int64_t least = (rows + DW_PARTIALS - 1) / DW_PARTIALS;
    const int64_t grain = cpu_row_grain(d);
    return grain > least ? grain : least;
}

static lathe_status prepare_bwd(lathe_kernel *k, int64_t *out_scratch)
{
    const int64_t d = lathe_desc_count(&k->in[2]), rows = lathe_desc_count(&k->in[3]);
    const int64_t grain = dw_grain(rows, d);
    if (kernel_has_out(k, 1))
        *out_scratch = (rows + grain - 1) / grain * d * 4;
    return LATHE_OK;
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t d = lathe_desc_count(&k->in[2]);
    const int64_t rows = lathe_desc_count(&k->in[1]) / d;
    norm_job job = {k, a, d, rows, dw_grain(rows, d), kernel_has_out(k, 1) ? a->scratch : NULL, 0};
    k->host->parallel_for(rows, job.grain, backward_range, &job);
    if (job.partials != NULL)
        cpu_add_partials(k->host, job.partials, (rows + job.grain - 1) / job.grain, d, a->out[1],
                         (a->accumulate & 2u) != 0);
    return LATHE_OK;
}

const kernel_op CPU_OP(RMSNORM) = {NULL, run, NULL, 0};
const kernel_op CPU_OP(ADD_RMSNORM) = {NULL, run_add, NULL, 0};
const kernel_op CPU_OP(RMSNORM_BWD) = {prepare_bwd, run_bwd, NULL, 3};

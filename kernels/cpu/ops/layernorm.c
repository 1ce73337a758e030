/* LAYERNORM and its derivative, over the last dim; ADD_LAYERNORM also computes a sum first.
 *
 *   ADD_LAYERNORM: first x = a + b, rounded, row by row
 *   y = xhat * w + b,   xhat = (x - mean) * rstd,   rstd = 1 / sqrt(var(x) + eps)
 *   dx = rstd * (g - mean(g) - xhat * mean(g*xhat)),  g = dy*w
 *   dw = sum over rows of dy*xhat,  db = sum over rows of dy
 */
#include <math.h>

#include "base/element.h"
#include "products/column_sums.h"

#define PARTIALS 64 /* maximum; the partial sums of dw and db are added in order */

typedef struct norm_job {
    const lathe_kernel *k;
    const lathe_kernel_args *a;
    int64_t c, rows, grain;
    float *dw, *db; /* [chunks, c] each; NULL: not wanted */
    int32_t
        adds; /* 1: out[0] = in[0] + in[1], and the other inputs and outputs are shifted by one */
} norm_job;

CPU_INLINE void forward_row(const void *x, const float *w, const float *b, void *y, float *mean,
                            float *rstd, int64_t c, float eps, int32_t dtype)
{
    float sum = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < c; i++)
        sum += ld(x, i, dtype);
    const float m = sum / (float)c;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < c; i++) {
        const float v = ld(x, i, dtype) - m;
        squares += v * v;
    }
    const float r = 1.0f / sqrtf(squares / (float)c + eps);
    *mean = m;
    *rstd = r;
    if (b != NULL)
#pragma GCC ivdep
        for (int64_t i = 0; i < c; i++)
            st(y, i, dtype, 0, (ld(x, i, dtype) - m) * r * w[i] + b[i]);
    else
#pragma GCC ivdep
        for (int64_t i = 0; i < c; i++)
            st(y, i, dtype, 0, (ld(x, i, dtype) - m) * r * w[i]);
}

static void forward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const norm_job *job = arg;
    const lathe_kernel *k = job->k;
    const lathe_kernel_args *a = job->a;
    const int32_t dtype = k->in[0].dtype;
    const void *const *in = a->in + job->adds;
    void *const *out = a->out + job->adds;
    const float *b = kernel_has_in(k, 2 + job->adds) ? in[2] : NULL;
    float *mean = out[1], *rstd = out[2];
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const int64_t first = r * job->c;
        const void *x = at(a->in[0], first, dtype);
        if (job->adds) {
            void *sum = at_mut(a->out[0], first, dtype);
            CPU_BY_DTYPE(dtype, add_elements, x, at(a->in[1], first, dtype), sum, job->c);
            x = sum;
        }
        CPU_BY_DTYPE(dtype, forward_row, x, in[1], b, at_mut(out[0], first, dtype), mean + r,
                     rstd + r, job->c, k->attrs.eps);
    }
}

static lathe_status forward(lathe_kernel *k, const lathe_kernel_args *a, int32_t adds)
{
    const int64_t c = lathe_desc_count(&k->in[1 + adds]);
    norm_job job = {.k = k, .a = a, .c = c, .rows = lathe_desc_count(&k->in[0]) / c, .adds = adds};
    k->host->parallel_for(job.rows, cpu_row_grain(c), forward_range, &job);
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

typedef struct row_in {
    const void *dy, *x; /* one row each */
    const float *w;
    float mean, rstd;
} row_in;

CPU_INLINE void backward_row(const row_in *in, void *dx, int accumulate, float *dw, float *db,
                             int64_t c, int32_t dtype)
{
    const void *dy = in->dy, *x = in->x;
    const float *w = in->w;
    const float m = in->mean, r = in->rstd;
    float sum = 0.0f, dot = 0.0f;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t i = 0; i < c; i++) {
        const float g = ld(dy, i, dtype) * w[i];
        sum += g;
        dot += g * ((ld(x, i, dtype) - m) * r);
    }
    const float mean_g = sum / (float)c, mean_gx = dot / (float)c;
    if (dw != NULL)
#pragma GCC ivdep
        for (int64_t i = 0; i < c; i++)
            dw[i] += ld(dy, i, dtype) * ((ld(x, i, dtype) - m) * r);
    if (db != NULL)
#pragma GCC ivdep
        for (int64_t i = 0; i < c; i++)
            db[i] += ld(dy, i, dtype);
    if (accumulate)
#pragma GCC ivdep
        for (int64_t i = 0; i < c; i++)
            st(dx, i, dtype, 1,
               r * (ld(dy, i, dtype) * w[i] - mean_g - (ld(x, i, dtype) - m) * r * mean_gx));
    else
#pragma GCC ivdep
        for (int64_t i = 0; i < c; i++)
            st(dx, i, dtype, 0,
               r * (ld(dy, i, dtype) * w[i] - mean_g - (ld(x, i, dtype) - m) * r * mean_gx));
}

static float *chunk_partials(float *partials, const norm_job *job, int64_t begin)
{
    if (partials == NULL)
        return NULL;
    float *p = partials + begin / job->grain * job->c;
    memset(p, 0, (size_t)job->c * sizeof *p);
    return p;
}

static void backward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const norm_job *job = arg;
    const lathe_kernel_args *a = job->a;
    const int32_t dtype = job->k->in[1].dtype;
    const float *mean = a->in[3], *rstd = a->in[4];
    float *dw = chunk_partials(job->dw, job, begin);
    float *db = chunk_partials(job->db, job, begin);
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const row_in in = {at(a->in[0], r * job->c, dtype), at(a->in[1], r * job->c, dtype),
                           a->in[2], mean[r], rstd[r]};
        CPU_BY_DTYPE(dtype, backward_row, &in, at_mut(a->out[0], r * job->c, dtype),
                     (a->accumulate & 1u) != 0, dw, db, job->c);
    }
}

/* Rows per chunk; depends only on the shape, and limits the number of partial sums. */
static int64_t partial_grain(int64_t rows, int64_t c)
{
    const int64_t least = (rows + PARTIALS - 1) / PARTIALS;
    const int64_t grain = cpu_row_grain(c);
    return grain > least ? grain : least;
}

static lathe_status prepare_bwd(lathe_kernel *k, int64_t *out_scratch)
{
    const int64_t c = lathe_desc_count(&k->in[2]), rows = lathe_desc_count(&k->in[3]);
    const int64_t grain = partial_grain(rows, c);
    for (int32_t i = 1; i < 3; i++)
        if (kernel_has_out(k, i))
            *out_scratch += (rows + grain - 1) / grain * c * 4;
    return LATHE_OK;
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t c = lathe_desc_count(&k->in[2]);
    const int64_t rows = lathe_desc_count(&k->in[1]) / c;
    norm_job job = {k, a, c, rows, partial_grain(rows, c), NULL, NULL, 0};
    const int64_t chunks = (rows + job.grain - 1) / job.grain;
    float *partials = a->scratch;
    if (kernel_has_out(k, 1)) {
        job.dw = partials;
        partials += chunks * c;
    }
    if (kernel_has_out(k, 2))
        job.db = partials;
    k->host->parallel_for(rows, job.grain, backward_range, &job);
    if (job.dw != NULL)
        cpu_add_partials(k->host, job.dw, chunks, c, a->out[1], (a->accumulate & 2u) != 0);
    if (job.db != NULL)
        cpu_add_partials(k->host, job.db, chunks, c, a->out[2], (a->accumulate & 4u) != 0);
    return LATHE_OK;
}

const kernel_op CPU_OP(LAYERNORM) = {NULL, run, NULL, 0};
const kernel_op CPU_OP(ADD_LAYERNORM) = {NULL, run_add, NULL, 0};
const kernel_op CPU_OP(LAYERNORM_BWD) = {prepare_bwd, run_bwd, NULL, 7};

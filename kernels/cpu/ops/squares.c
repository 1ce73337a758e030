/* SUM_SQUARES and UPDATE_SQUARES: sums of squares in f64, for the norms of a step.
 *
 *   SUM_SQUARES     y[s] = sum of x[e]^2 over segment s
 *   UPDATE_SQUARES  y[k] = sum of (s*(alpha*u + beta*p))^2 over 16384 elements
 *
 * One thread computes a whole sum, so its order does not depend on the number of threads.
 * SUM_SQUARES uses 16 lanes with every vector width and no fused multiply-add, so all builds give
 * the same bits.
 */
#include "base/cpu.h"
#include "base/element.h"

#define LANES 16
#define PIECE 16384 /* elements per sum of UPDATE_SQUARES */

typedef struct sum_job {
    const void *x;
    const int64_t *segments;
    double *y;
    int32_t dtype;
} sum_job;

CPU_INLINE void squares(const void *x, int64_t n, double *out, int32_t dtype)
{
    double lane[LANES] = {0.0};
    int64_t i = 0;
    *out = 0.0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const double v = (double)ld(x, i + k, dtype);
            lane[k] += v * v;
        }
    for (; i < n; i++)
        lane[0] += (double)ld(x, i, dtype) * (double)ld(x, i, dtype);
    for (int k = 0; k < LANES; k++)
        *out += lane[k];
}

static void sum_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const sum_job *job = arg;
    (void)worker;
    for (int64_t s = begin; s < end; s++)
        CPU_BY_DTYPE(job->dtype, squares, at(job->x, job->segments[2 * s], job->dtype),
                     job->segments[2 * s + 1], &job->y[s]);
}

static lathe_status run_sum(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->out[0]), n_x = lathe_desc_count(&k->in[0]);
    sum_job job = {a->in[0], a->in[1], a->out[0], k->in[0].dtype};
    for (int64_t s = 0; s < n; s++) {
        const int64_t at = job.segments[2 * s], count = job.segments[2 * s + 1];
        if (at < 0 || count < 0 || at > n_x || count > n_x - at)
            return lathe_fail(k->host, LATHE_E_ARG,
                              "sum_squares: segment %lld, %lld elements from %lld, is not within "
                              "the %lld",
                              (long long)s, (long long)count, (long long)at, (long long)n_x);
    }
    k->host->parallel_for(n, 1, sum_range, &job);
    return LATHE_OK;
}

typedef struct update_job {
    const float *p;
    const void *u;
    double *y;
    double s, alpha, beta;
    int64_t n;
    int32_t u_dtype;
} update_job;

static double update_squares(const update_job *job, int64_t from, int64_t to)
{
    float b[CPU_TILE];
    double sum = 0.0;
    for (int64_t i = from; i < to; i += CPU_TILE) {
        const int64_t n = to - i < CPU_TILE ? to - i : CPU_TILE;
        const float *u = tile_in(b, job->u, job->u_dtype, i, n);
        for (int64_t j = 0; j < n; j++) {
            const double d =
                job->s * (job->alpha * (double)u[j] + job->beta * (double)job->p[i + j]);
            sum += d * d;
        }
    }
    return sum;
}

static void update_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const update_job *job = arg;
    (void)worker;
    for (int64_t k = begin; k < end; k++)
        job->y[k] =
            update_squares(job, k * PIECE, (k + 1) * PIECE < job->n ? (k + 1) * PIECE : job->n);
}

static lathe_status run_update(lathe_kernel *k, const lathe_kernel_args *a)
{
    update_job job = {a->in[0],
                      a->in[1],
                      a->out[0],
                      (double)((const float *)a->in[2])[k->attrs.start],
                      k->attrs.alpha,
                      k->attrs.beta,
                      lathe_desc_count(&k->in[0]),
                      k->in[1].dtype};
    k->host->parallel_for(lathe_desc_count(&k->out[0]), 1, update_range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(SUM_SQUARES) = {NULL, run_sum, NULL, 0};
const kernel_op CPU_OP(UPDATE_SQUARES) = {NULL, run_update, NULL, 0};

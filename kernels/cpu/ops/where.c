/* Selects elements: MIN, MAX and LESS (element_loops.h), WHERE and its derivative.
 *
 *   MIN MAX    y = the smaller, the larger of a and b; NaN if one of them is NaN
 *   LESS       y = 1 where a < b, else 0
 *   WHERE      y = a where condition > 0.5, else b
 *   WHERE_BWD  da = dy where condition > 0.5, else 0;  db = dy - da
 */
#include "ops/element_loops.h"

CPU_TILE_FN(tile_min, x[j] < y[j] || x[j] != x[j] ? x[j] : y[j])
CPU_TILE_FN(tile_max, y[j] < x[j] || x[j] != x[j] ? x[j] : y[j])
CPU_TILE_FN(tile_less, x[j] < y[j] ? 1.0f : 0.0f)

CPU_TILE_OP(MIN, tile_min, 1)
CPU_TILE_OP(MAX, tile_max, 1)
CPU_TILE_OP(LESS, tile_less, 1)

typedef struct where_job {
    const lathe_kernel_args *a;
    int32_t dtype;
} where_job;

static void where_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const where_job *job = arg;
    float b0[CPU_TILE], b1[CPU_TILE], b2[CPU_TILE], b3[CPU_TILE];
    (void)worker;
    for (int64_t i = begin; i < end; i += CPU_TILE) {
        const int64_t n = end - i < CPU_TILE ? end - i : CPU_TILE;
        const float *condition = tile_in(b0, job->a->in[0], job->dtype, i, n);
        const float *a = tile_in(b1, job->a->in[1], job->dtype, i, n);
        const float *b = tile_in(b2, job->a->in[2], job->dtype, i, n);
        float *y = tile_out(b3, job->a->out[0], job->dtype, 0, i);
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++)
            y[j] = condition[j] > 0.5f ? a[j] : b[j];
        if (y == b3)
            tile_done(b3, job->a->out[0], job->dtype, 0, i, n);
    }
}

static void backward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const where_job *job = arg;
    const int add_a = (job->a->accumulate & 1u) != 0, add_b = (job->a->accumulate & 2u) != 0;
    float b0[CPU_TILE], b1[CPU_TILE], b2[CPU_TILE], b3[CPU_TILE];
    (void)worker;
    for (int64_t i = begin; i < end; i += CPU_TILE) {
        const int64_t n = end - i < CPU_TILE ? end - i : CPU_TILE;
        const float *dy = tile_in(b0, job->a->in[0], job->dtype, i, n);
        const float *condition = tile_in(b1, job->a->in[1], job->dtype, i, n);
        float *da = tile_out(b2, job->a->out[0], job->dtype, add_a, i);
        float *db = tile_out(b3, job->a->out[1], job->dtype, add_b, i);
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            const float d = dy[j];
            const int first = condition[j] > 0.5f;
            da[j] = first ? d : 0.0f;
            db[j] = first ? 0.0f : d;
        }
        if (da == b2)
            tile_done(b2, job->a->out[0], job->dtype, add_a, i, n);
        if (db == b3)
            tile_done(b3, job->a->out[1], job->dtype, add_b, i, n);
    }
}

static lathe_status run_where(lathe_kernel *k, const lathe_kernel_args *a)
{
    where_job job = {a, k->in[0].dtype};
    k->host->parallel_for(lathe_desc_count(&k->in[0]), CPU_GRAIN, where_range, &job);
    return LATHE_OK;
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    where_job job = {a, k->in[0].dtype};
    k->host->parallel_for(lathe_desc_count(&k->in[0]), CPU_GRAIN, backward_range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(WHERE) = {NULL, run_where, NULL, 0};
const kernel_op CPU_OP(WHERE_BWD) = {NULL, run_bwd, NULL, 3};

/* EXPERT_PLACES, EXPERT_ROWS, EXPERT_SUM and EXPERT_SUM_BWD: the rows of tokens in the order of
 * their experts, and back.
 *
 * The order is that of a counting sort, which keeps the order of rows of one expert. It is made by
 * one thread: it reads N*K numbers twice, where the products read N*K rows. */
#include "base/cpu.h"
#include "base/element.h"

typedef struct spread_job {
    const void *x, *dy;
    const float *weight; /* NULL: all are 1 */
    const int32_t *place;
    void *y;
    float *dweight;
    int64_t k, c;
    int32_t dtype;
    uint32_t accumulate;
} spread_job;

static lathe_status check_places(const lathe_kernel *k, const int32_t *place, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (place[i] < 0 || place[i] >= n)
            return lathe_fail(k->host, LATHE_E_ARG, "%s: place %d at %lld is outside of 0 to %lld",
                              kernel_op_name(k), (int)place[i], (long long)i, (long long)n - 1);
    return LATHE_OK;
}

static lathe_status run_places(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]), experts = k->attrs.count;
    const int32_t *index = a->in[0];
    int32_t *place = a->out[0], *first = a->out[1];
    for (int64_t e = 0; e <= experts; e++)
        first[e] = 0;
    for (int64_t i = 0; i < n; i++) {
        if (index[i] < -1 || index[i] >= experts)
            return lathe_fail(k->host, LATHE_E_ARG, "%s: expert %d at %lld is outside of 0 to %lld",
                              kernel_op_name(k), (int)index[i], (long long)i,
                              (long long)experts - 1);
        first[index[i] < 0 ? 0 : index[i]]++;
    }
    /* first[e] becomes the place of the next row of e, and after the second pass of the row after
     * its last one, which is the first of e+1 */
    int32_t at = 0;
    for (int64_t e = 0; e < experts; e++) {
        const int32_t rows = first[e];
        first[e] = at;
        at += rows;
    }
    for (int64_t i = 0; i < n; i++)
        place[i] = first[index[i] < 0 ? 0 : index[i]]++;
    for (int64_t e = experts; e > 0; e--)
        first[e] = first[e - 1];
    first[0] = 0;
    return LATHE_OK;
}

CPU_INLINE void spread_row(const spread_job *job, int64_t n, int32_t dtype)
{
    const void *x = at(job->x, n * job->c, dtype);
    for (int64_t j = 0; j < job->k; j++) {
        void *y = at_mut(job->y, job->place[n * job->k + j] * job->c, dtype);
        if (!job->accumulate) {
            memcpy(y, x, (size_t)(job->c * lathe_dtype_bytes(dtype)));
            continue;
        }
#pragma GCC ivdep
        for (int64_t i = 0; i < job->c; i++)
            st(y, i, dtype, 1, ld(x, i, dtype));
    }
}

static void spread_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const spread_job *job = arg;
    (void)worker;
    for (int64_t n = begin; n < end; n++)
        CPU_BY_DTYPE(job->dtype, spread_row, job, n);
}

static lathe_status run_rows(lathe_kernel *k, const lathe_kernel_args *a)
{
    spread_job job = {.x = a->in[0],
                      .place = a->in[1],
                      .y = a->out[0],
                      .k = k->in[1].dims[1],
                      .c = k->in[0].dims[1],
                      .dtype = k->in[0].dtype,
                      .accumulate = a->accumulate & 1u};
    LATHE_TRY(check_places(k, job.place, k->out[0].dims[0]));
    k->host->parallel_for(k->in[0].dims[0], cpu_row_grain(job.c * job.k), spread_range, &job);
    return LATHE_OK;
}

CPU_INLINE void sum_row(const spread_job *job, int64_t n, int32_t dtype)
{
    float sum[CPU_TILE];
    for (int64_t from = 0; from < job->c; from += CPU_TILE) {
        const int64_t m = job->c - from < CPU_TILE ? job->c - from : CPU_TILE;
        memset(sum, 0, (size_t)m * sizeof *sum);
        for (int64_t j = n * job->k; j < (n + 1) * job->k; j++) {
            const float w = job->weight != NULL ? job->weight[j] : 1.0f;
            const void *x = at(job->x, job->place[j] * job->c + from, dtype);
            for (int64_t i = 0; i < m; i++)
                sum[i] += w * ld(x, i, dtype);
        }
        void *y = at_mut(job->y, n * job->c + from, dtype);
        if (job->accumulate)
            for (int64_t i = 0; i < m; i++)
                st(y, i, dtype, 1, sum[i]);
        else
            for (int64_t i = 0; i < m; i++)
                st(y, i, dtype, 0, sum[i]);
    }
}

static void sum_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const spread_job *job = arg;
    (void)worker;
    for (int64_t n = begin; n < end; n++)
        CPU_BY_DTYPE(job->dtype, sum_row, job, n);
}

static lathe_status run_sum(lathe_kernel *k, const lathe_kernel_args *a)
{
    spread_job job = {.x = a->in[0],
                      .weight = kernel_has_in(k, 1) ? a->in[1] : NULL,
                      .place = a->in[2],
                      .y = a->out[0],
                      .k = k->in[2].dims[1],
                      .c = k->in[0].dims[1],
                      .dtype = k->in[0].dtype,
                      .accumulate = a->accumulate & 1u};
    LATHE_TRY(check_places(k, job.place, k->in[0].dims[0]));
    k->host->parallel_for(k->out[0].dims[0], cpu_row_grain(job.c * job.k), sum_range, &job);
    return LATHE_OK;
}

/* dx of one row, and the gradient of its weight: a sum in eight parts, which the compiler keeps in
 * one register. */
CPU_INLINE void backward_row(const spread_job *job, int64_t j, int32_t dtype)
{
    const int64_t row = job->place[j] * job->c;
    const void *dy = at(job->dy, j / job->k * job->c, dtype), *x = at(job->x, row, dtype);
    void *dx = at_mut(job->y, row, dtype);
    const float w = job->weight[j];
    float parts[8] = {0}, dot = 0.0f;
    int64_t i = 0;
    for (; i + 8 <= job->c; i += 8)
        for (int64_t e = 0; e < 8; e++)
            parts[e] += ld(dy, i + e, dtype) * ld(x, i + e, dtype);
    for (; i < job->c; i++)
        dot += ld(dy, i, dtype) * ld(x, i, dtype);
    for (int64_t e = 0; e < 8; e++)
        dot += parts[e];
    const int32_t adds = (job->accumulate & 1u) != 0;
    for (i = 0; i < job->c; i++)
        st(dx, i, dtype, adds, w * ld(dy, i, dtype));
    if (job->dweight != NULL)
        job->dweight[j] = (job->accumulate & 2u) != 0 ? job->dweight[j] + dot : dot;
}

static void backward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const spread_job *job = arg;
    (void)worker;
    for (int64_t j = begin; j < end; j++)
        CPU_BY_DTYPE(job->dtype, backward_row, job, j);
}

static lathe_status run_sum_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    spread_job job = {.x = a->in[1],
                      .dy = a->in[0],
                      .weight = a->in[2],
                      .place = a->in[3],
                      .y = a->out[0],
                      .dweight = kernel_has_out(k, 1) ? a->out[1] : NULL,
                      .k = k->in[3].dims[1],
                      .c = k->in[1].dims[1],
                      .dtype = k->in[0].dtype,
                      .accumulate = a->accumulate};
    LATHE_TRY(check_places(k, job.place, k->in[1].dims[0]));
    k->host->parallel_for(k->in[1].dims[0], cpu_row_grain(job.c), backward_range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(EXPERT_PLACES) = {NULL, run_places, NULL, 0};
const kernel_op CPU_OP(EXPERT_ROWS) = {NULL, run_rows, NULL, 1};
const kernel_op CPU_OP(EXPERT_SUM) = {NULL, run_sum, NULL, 1};
const kernel_op CPU_OP(EXPERT_SUM_BWD) = {NULL, run_sum_bwd, NULL, 3};

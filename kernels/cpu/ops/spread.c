/* Broadcasts a vector over a matrix, and sums a matrix to a vector. Sums are f32; the sum of a row
 * is split over the lanes of a vector.
 *
 *   BROADCAST_ROW     y[n,j] = v[j]      SUM_ROWS     y[j] = sum of x[n,j] over n
 *   BROADCAST_COLUMN  y[n,j] = v[n]      SUM_COLUMNS  y[n] = sum of x[n,j] over j
 */
#include "base/cpu.h"
#include "base/element.h"
#include "products/column_sums.h"

typedef struct spread_job {
    const void *x;
    void *y;
    int64_t cols;
    int32_t dtype, is_row, accumulate; /* dtype: of the matrix */
} spread_job;

CPU_INLINE void broadcast_row(const spread_job *job, int64_t r, int32_t dtype)
{
    const float *v = job->x;
    void *y = at_mut(job->y, r * job->cols, dtype);
    if (job->is_row)
#pragma GCC ivdep
        for (int64_t j = 0; j < job->cols; j++)
            st(y, j, dtype, job->accumulate, v[j]);
    else
#pragma GCC ivdep
        for (int64_t j = 0; j < job->cols; j++)
            st(y, j, dtype, job->accumulate, v[r]);
}

CPU_INLINE void sum_row(const spread_job *job, int64_t r, int32_t dtype)
{
    const void *x = at(job->x, r * job->cols, dtype);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < job->cols; j++)
        sum += ld(x, j, dtype);
    st(job->y, r, LATHE_F32, job->accumulate, sum);
}

static void broadcast_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const spread_job *job = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        CPU_BY_DTYPE(job->dtype, broadcast_row, job, r);
}

static void sum_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const spread_job *job = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        CPU_BY_DTYPE(job->dtype, sum_row, job, r);
}

static lathe_status run(const lathe_kernel *k, const lathe_kernel_args *a, const lathe_desc *matrix,
                        lathe_range_fn body)
{
    spread_job job = {a->in[0],
                      a->out[0],
                      matrix->dims[1],
                      matrix->dtype,
                      k->op_id == LATHE_OP_BROADCAST_ROW,
                      (a->accumulate & 1u) != 0};
    k->host->parallel_for(matrix->dims[0], cpu_row_grain(matrix->dims[1]), body, &job);
    return LATHE_OK;
}

static lathe_status run_broadcast(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run(k, a, &k->out[0], broadcast_range);
}

static lathe_status run_sum_columns(lathe_kernel *k, const lathe_kernel_args *a)
{
    return run(k, a, &k->in[0], sum_range);
}

static lathe_status prepare_sum_rows(lathe_kernel *k, int64_t *out_scratch)
{
    *out_scratch = cpu_column_sums_scratch(k->in[0].dims[0], k->in[0].dims[1]);
    return LATHE_OK;
}

static lathe_status run_sum_rows(lathe_kernel *k, const lathe_kernel_args *a)
{
    cpu_column_sums(k->host, a->in[0], k->in[0].dtype, k->in[0].dims[0], k->in[0].dims[1],
                    a->out[0], (a->accumulate & 1u) != 0, a->scratch);
    return LATHE_OK;
}

const kernel_op CPU_OP(BROADCAST_ROW) = {NULL, run_broadcast, NULL, 1};
const kernel_op CPU_OP(BROADCAST_COLUMN) = {NULL, run_broadcast, NULL, 1};
const kernel_op CPU_OP(SUM_ROWS) = {prepare_sum_rows, run_sum_rows, NULL, 1};
const kernel_op CPU_OP(SUM_COLUMNS) = {NULL, run_sum_columns, NULL, 1};

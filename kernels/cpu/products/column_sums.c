/* Each partial sum is of a fixed number of rows, and the partial sums are added in order, so that
 * the result does not depend on the number of workers. */
#include "products/column_sums.h"

#include "base/element.h"

#define COLSUM_ROWS 64     /* minimum rows of a partial sum */
#define COLSUM_PARTIALS 64 /* maximum number of partial sums */

/* Rows of one partial sum; depends only on the number of rows. */
static int64_t rows_per_partial(int64_t rows)
{
    const int64_t r = (rows + COLSUM_PARTIALS - 1) / COLSUM_PARTIALS;
    return r > COLSUM_ROWS ? r : COLSUM_ROWS;
}

int64_t cpu_column_sums_scratch(int64_t rows, int64_t cols)
{
    const int64_t per = rows_per_partial(rows);
    return cpu_round_up((rows + per - 1) / per * cols * 4, 64);
}

typedef struct colsum_job {
    const void *dy;
    float *partials;
    int64_t cols, per;
    int32_t dtype;
} colsum_job;

CPU_INLINE void sum_rows(const void *dy, float *restrict acc, int64_t begin, int64_t end,
                         int64_t cols, int32_t dtype)
{
    memset(acc, 0, (size_t)cols * sizeof *acc);
    int64_t i = begin;
    for (; i + 4 <= end; i += 4) {
        const void *r0 = at(dy, i * cols, dtype), *r1 = at(r0, cols, dtype);
        const void *r2 = at(r1, cols, dtype), *r3 = at(r2, cols, dtype);
#pragma GCC ivdep
        for (int64_t j = 0; j < cols; j++)
            acc[j] += (ld(r0, j, dtype) + ld(r1, j, dtype)) + (ld(r2, j, dtype) + ld(r3, j, dtype));
    }
    for (; i < end; i++) {
        const void *r = at(dy, i * cols, dtype);
#pragma GCC ivdep
        for (int64_t j = 0; j < cols; j++)
            acc[j] += ld(r, j, dtype);
    }
}

static void colsum_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const colsum_job *job = arg;
    float *acc = job->partials + begin / job->per * job->cols;
    (void)worker;
    CPU_BY_DTYPE(job->dtype, sum_rows, job->dy, acc, begin, end, job->cols);
}

void cpu_column_sums(const lathe_host *host, const void *dy, int32_t dtype, int64_t rows,
                     int64_t cols, float *out, int accumulate, void *scratch)
{
    const int64_t per = rows_per_partial(rows);
    colsum_job job = {dy, scratch, cols, per, dtype};
    host->parallel_for(rows, per, colsum_range, &job);
    cpu_add_partials(host, scratch, (rows + per - 1) / per, cols, out, accumulate);
}

typedef struct partials_job {
    const float *partials;
    float *out;
    int64_t n, cols;
    int32_t accumulate;
} partials_job;

static void partials_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const partials_job *job = arg;
    (void)worker;
    if (!job->accumulate)
        memset(job->out + begin, 0, (size_t)(end - begin) * sizeof(float));
    float *restrict out = job->out;
    for (int64_t c = 0; c < job->n; c++) {
        const float *restrict p = job->partials + c * job->cols;
        for (int64_t j = begin; j < end; j++)
            out[j] += p[j];
    }
}

void cpu_add_partials(const lathe_host *host, const float *partials, int64_t n_partials,
                      int64_t cols, float *out, int accumulate)
{
    partials_job job = {partials, out, n_partials, cols, accumulate};
    host->parallel_for(cols, 256, partials_range, &job);
}

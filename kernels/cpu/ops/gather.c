/* GATHER and SCATTER: copy and add rows by index. The index -1 means no row.
 *
 *   GATHER   y[n] = x[index[n]], a row of zeros for -1
 *   SCATTER  y[index[n]] += x[n], in the order of n, in f32
 */
#include "base/cpu.h"
#include "base/element.h"

#define COLUMNS 64 /* of y per chunk of SCATTER; every chunk reads the whole index in order */

typedef struct gather_job {
    const int32_t *index;
    const void *x;
    void *y;
    int64_t n, rows, row; /* length of the index, rows of y, elements of a row */
    int32_t dtype, accumulate;
} gather_job;

static lathe_status check_index(const lathe_kernel *k, const int32_t *index, int64_t n,
                                int64_t rows)
{
    for (int64_t i = 0; i < n; i++)
        if (index[i] < -1 || index[i] >= rows)
            return lathe_fail(k->host, LATHE_E_ARG, "%s: index %d at %lld is outside of -1 to %lld",
                              kernel_op_name(k), (int)index[i], (long long)i, (long long)rows - 1);
    return LATHE_OK;
}

CPU_INLINE void gather_row(const gather_job *job, int64_t i, int32_t dtype)
{
    void *y = at_mut(job->y, i * job->row, dtype);
    const int64_t from = job->index[i];
    if (from < 0) {
        if (!job->accumulate)
            memset(y, 0, (size_t)(job->row * lathe_dtype_bytes(dtype)));
        return;
    }
    const void *x = at(job->x, from * job->row, dtype);
#pragma GCC ivdep
    for (int64_t j = 0; j < job->row; j++)
        st(y, j, dtype, job->accumulate, ld(x, j, dtype));
}

static void gather_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const gather_job *job = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        CPU_BY_DTYPE(job->dtype, gather_row, job, i);
}

/* Row r of y: adds the rows of x whose index is r, in order. */
CPU_INLINE void scatter_row(const gather_job *job, int64_t r, int64_t first, int64_t n,
                            int32_t dtype)
{
    float sum[COLUMNS] = {0};
    for (int64_t i = 0; i < job->n; i++) {
        if (job->index[i] != r)
            continue;
        const void *x = at(job->x, i * job->row + first, dtype);
        for (int64_t j = 0; j < n; j++)
            sum[j] += ld(x, j, dtype);
    }
    for (int64_t j = 0; j < n; j++)
        st(job->y, r * job->row + first + j, dtype, job->accumulate, sum[j]);
}

static void scatter_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const gather_job *job = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        for (int64_t first = 0; first < job->row; first += COLUMNS) {
            const int64_t n = job->row - first < COLUMNS ? job->row - first : COLUMNS;
            CPU_BY_DTYPE(job->dtype, scatter_row, job, r, first, n);
        }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int gathers = k->op_id == LATHE_OP_GATHER;
    const int64_t n = lathe_desc_count(&k->in[1]);
    gather_job job = {a->in[1],          a->in[0],
                      a->out[0],         n,
                      k->out[0].dims[0], lathe_desc_count(&k->in[0]) / k->in[0].dims[0],
                      k->in[0].dtype,    (a->accumulate & 1u) != 0};
    LATHE_TRY(check_index(k, a->in[1], n, gathers ? k->in[0].dims[0] : job.rows));
    k->host->parallel_for(job.rows, gathers ? cpu_row_grain(job.row) : 4,
                          gathers ? gather_range : scatter_range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(GATHER) = {NULL, run, NULL, 1};
const kernel_op CPU_OP(SCATTER) = {NULL, run, NULL, 1};

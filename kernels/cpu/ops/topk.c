/* TOPK and its derivative: the k largest elements of each row, largest first; equal elements keep
 * their order. NaN is never selected: if a row has fewer than k numbers, the remaining places get
 * NaN and the index -1. */
#include <math.h>

#include "base/cpu.h"
#include "base/element.h"

typedef struct topk_job {
    const void *x;
    const int32_t *index; /* for TOPK_BWD */
    void *y;
    int32_t *out_index; /* for TOPK */
    int64_t k, v;
    int32_t dtype, accumulate;
} topk_job;

/* Inserts element i into the sorted list y, which has `n` elements and grows to at most k. Returns
 * the new number of elements. */
CPU_INLINE int64_t insert(const topk_job *job, void *y, int32_t *index, int64_t n, float x,
                          int64_t i, int32_t dtype)
{
    int64_t place = n < job->k ? n : job->k - 1;
    if (n == job->k && !(x > ld(y, place, dtype)))
        return n;
    for (; place > 0 && x > ld(y, place - 1, dtype); place--) {
        st(y, place, dtype, 0, ld(y, place - 1, dtype));
        index[place] = index[place - 1];
    }
    st(y, place, dtype, 0, x);
    index[place] = (int32_t)i;
    return n < job->k ? n + 1 : n;
}

CPU_INLINE void forward_row(const topk_job *job, int64_t r, int32_t dtype)
{
    const void *x = at(job->x, r * job->v, dtype);
    void *y = at_mut(job->y, r * job->k, dtype);
    int32_t *index = job->out_index + r * job->k;
    int64_t n = 0;
    for (int64_t i = 0; i < job->v; i++)
        if (!isnan(ld(x, i, dtype)))
            n = insert(job, y, index, n, ld(x, i, dtype), i, dtype);
    for (; n < job->k; n++) {
        st(y, n, dtype, 0, NAN);
        index[n] = -1;
    }
}

CPU_INLINE void backward_row(const topk_job *job, int64_t r, int32_t dtype)
{
    void *dx = at_mut(job->y, r * job->v, dtype);
    if (!job->accumulate)
        memset(dx, 0, (size_t)(job->v * lathe_dtype_bytes(dtype)));
    for (int64_t j = r * job->k; j < (r + 1) * job->k; j++)
        if (job->index[j] >= 0 && job->index[j] < job->v)
            st(dx, job->index[j], dtype, 1, ld(job->x, j, dtype));
}

static void forward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const topk_job *job = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        CPU_BY_DTYPE(job->dtype, forward_row, job, r);
}

static void backward_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const topk_job *job = arg;
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        CPU_BY_DTYPE(job->dtype, backward_row, job, r);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    topk_job job = {.x = a->in[0],
                    .y = a->out[0],
                    .out_index = a->out[1],
                    .k = k->out[0].dims[1],
                    .v = k->in[0].dims[1],
                    .dtype = k->in[0].dtype};
    k->host->parallel_for(k->in[0].dims[0], cpu_row_grain(job.v), forward_range, &job);
    return LATHE_OK;
}

static lathe_status run_bwd(lathe_kernel *k, const lathe_kernel_args *a)
{
    topk_job job = {.x = a->in[0],
                    .index = a->in[1],
                    .y = a->out[0],
                    .k = k->in[0].dims[1],
                    .v = k->out[0].dims[1],
                    .dtype = k->in[0].dtype,
                    .accumulate = (a->accumulate & 1u) != 0};
    k->host->parallel_for(k->in[0].dims[0], cpu_row_grain(job.v), backward_range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(TOPK) = {NULL, run, NULL, 0};
const kernel_op CPU_OP(TOPK_BWD) = {NULL, run_bwd, NULL, 1};

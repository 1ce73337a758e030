/* SKEW: skew-symmetric blocks from what is above their diagonals; with `inverse`, each result is
 * the difference of the two elements that mirror each other. */
#include "base/cpu.h"
#include "base/element.h"

typedef struct skew_job {
    const void *x;
    void *y;
    int64_t b, width; /* columns of a block, and of all */
    int32_t dtype, inverse, accumulate;
} skew_job;

CPU_INLINE void block(const skew_job *job, int64_t g, int32_t dtype)
{
    const int64_t b = job->b, width = job->width;
    int64_t k = g * (b * (b - 1) / 2);
    for (int64_t i = 0; i < b; i++) {
        if (!job->inverse && !job->accumulate)
            st(job->y, i * width + g * b + i, dtype, 0, 0.0f);
        for (int64_t j = i + 1; j < b; j++, k++) {
            const int64_t upper = i * width + g * b + j, lower = j * width + g * b + i;
            if (job->inverse) {
                st(job->y, k, dtype, job->accumulate,
                   ld(job->x, upper, dtype) - ld(job->x, lower, dtype));
                continue;
            }
            const float v = ld(job->x, k, dtype);
            st(job->y, upper, dtype, job->accumulate, v);
            st(job->y, lower, dtype, job->accumulate, -v);
        }
    }
}

static void range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const skew_job *job = arg;
    (void)worker;
    for (int64_t g = begin; g < end; g++)
        CPU_BY_DTYPE(job->dtype, block, job, g);
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *blocks = k->attrs.inverse ? &k->in[0] : &k->out[0]; /* [b, G*b] */
    const int64_t b = blocks->dims[0];
    skew_job job = {a->in[0],
                    a->out[0],
                    b,
                    blocks->dims[1],
                    k->in[0].dtype,
                    k->attrs.inverse,
                    (a->accumulate & 1u) != 0};
    k->host->parallel_for(blocks->dims[1] / b, cpu_row_grain(b * b), range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(SKEW) = {NULL, run, NULL, 1};

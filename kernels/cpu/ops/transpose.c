/* TRANSPOSE: y[s,r] = x[r,s], any dtype of 1, 2, 4 or 8 bytes. f32, bf16 and f16 are transposed in
 * registers, others element by element in blocks. */
#include "base/cpu.h"
#include "base/element.h"
#include "products/pack.h"

#define BLOCK 32

typedef struct transpose_job {
    const void *x;
    void *y;
    int64_t r, s;
    int64_t bytes; /* of one element */
} transpose_job;

#define TRANSPOSE_BLOCK(type)                                                                      \
    static void block_##type(const transpose_job *job, int64_t r0, int64_t r1, int64_t s0,         \
                             int64_t s1)                                                           \
    {                                                                                              \
        const type *x = job->x;                                                                    \
        type *y = job->y;                                                                          \
        for (int64_t s = s0; s < s1; s++)                                                          \
            for (int64_t r = r0; r < r1; r++)                                                      \
                y[s * job->r + r] = x[r * job->s + s];                                             \
    }

TRANSPOSE_BLOCK(uint8_t)
TRANSPOSE_BLOCK(uint16_t)
TRANSPOSE_BLOCK(uint32_t)
TRANSPOSE_BLOCK(uint64_t)

static void range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const transpose_job *job = arg;
    (void)worker;
    for (int64_t r = 0; r < job->r; r += BLOCK) {
        const int64_t stop = r + BLOCK < job->r ? r + BLOCK : job->r;
        if (job->bytes == 1)
            block_uint8_t(job, r, stop, begin, end);
        else if (job->bytes == 2)
            block_uint16_t(job, r, stop, begin, end);
        else if (job->bytes == 4)
            block_uint32_t(job, r, stop, begin, end);
        else
            block_uint64_t(job, r, stop, begin, end);
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const lathe_desc *x = &k->in[0];
    if (kernel_computes(x->dtype)) {
        cpu_pack_transposed(k->host, a->out[0], x->dtype, a->in[0], x->dtype, x->dims[0],
                            x->dims[1], x->dims[1]);
        return LATHE_OK;
    }
    transpose_job job = {a->in[0], a->out[0], x->dims[0], x->dims[1], lathe_dtype_bytes(x->dtype)};
    k->host->parallel_for(x->dims[1], BLOCK, range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(TRANSPOSE) = {NULL, run, NULL, 0};

/* DROPOUT and its derivative: y = x / (1-p) for the elements that the counter RNG keeps, else 0.
 *
 * Element e uses word e%4 of lathe_rng_block(rng[0], rng[1], rng_stream, e/4); it is kept if u >=
 * p.
 */
#include "cpu.h"
#include "element.h"
#include "lathe/kit/rng_fill.h"

LATHE_STATIC_ASSERT(CPU_TILE % 4 == 0 && CPU_GRAIN % CPU_TILE == 0, "a tile is whole RNG blocks");

typedef struct dropout_job {
    const void *x;
    void *y;
    uint64_t seed, step, stream;
    float p, factor;
    int32_t dtype, accumulate;
} dropout_job;

/* Factors, 0 or 1/(1-p), of the tile that starts at element `first`. */
static void mask_tile(const dropout_job *job, int64_t first, float *mask)
{
    uint32_t words[CPU_TILE];
    lathe_rng_fill(words, CPU_TILE / 4, job->seed, job->step, job->stream, (uint64_t)(first / 4));
    for (int64_t i = 0; i < CPU_TILE; i++)
        mask[i] = lathe_uniform_f32(words[i]) >= job->p ? job->factor : 0.0f;
}

static void range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const dropout_job *job = arg;
    float b0[CPU_TILE], b1[CPU_TILE], mask[CPU_TILE];
    (void)worker;
    for (int64_t i = begin; i < end; i += CPU_TILE) {
        const int64_t n = end - i < CPU_TILE ? end - i : CPU_TILE;
        const float *x = tile_in(b0, job->x, job->dtype, i, n);
        float *y = tile_out(b1, job->y, job->dtype, job->accumulate, i);
        mask_tile(job, i, mask);
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++)
            y[j] = mask[j] > 0.0f ? x[j] * mask[j] : 0.0f;
        if (y == b1)
            tile_done(b1, job->y, job->dtype, job->accumulate, i, n);
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t *rng = a->in[1];
    dropout_job job = {a->in[0],
                       a->out[0],
                       (uint64_t)rng[0],
                       (uint64_t)rng[1],
                       k->attrs.rng_stream,
                       k->attrs.p,
                       1.0f / (1.0f - k->attrs.p),
                       k->in[0].dtype,
                       (a->accumulate & 1u) != 0};
    k->host->parallel_for(lathe_desc_count(&k->in[0]), CPU_GRAIN, range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(DROPOUT) = {NULL, run, NULL, 0};
const kernel_op CPU_OP(DROPOUT_BWD) = {NULL, run, NULL, 1};

/* DROPOUT and its derivative: y = x / (1-p) for the elements that the counter RNG keeps, else 0.
 *
 * An element uses its word of random_words.h; it is kept if u >= p.
 */
#include "base/cpu.h"
#include "base/element.h"
#include "base/random_words.h"

typedef struct dropout_job {
    const void *x;
    void *y;
    cpu_random random;
    float p, factor;
    int32_t dtype, accumulate;
} dropout_job;

/* Factors, 0 or 1/(1-p), of the tile of n elements that starts at element `first`. */
static void mask_tile(const dropout_job *job, int64_t first, int64_t n, float *mask)
{
    uint32_t words[CPU_TILE];
    cpu_random_words(&job->random, first, n, words);
    for (int64_t i = 0; i < n; i++)
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
        mask_tile(job, i, n, mask);
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++)
            y[j] = mask[j] > 0.0f ? x[j] * mask[j] : 0.0f;
        if (y == b1)
            tile_done(b1, job->y, job->dtype, job->accumulate, i, n);
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]);
    dropout_job job = {a->in[0],
                       a->out[0],
                       {a->in[1], k->attrs.rng_stream, n},
                       k->attrs.p,
                       1.0f / (1.0f - k->attrs.p),
                       k->in[0].dtype,
                       (a->accumulate & 1u) != 0};
    k->host->parallel_for(n, CPU_GRAIN, range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(DROPOUT) = {NULL, run, NULL, 0};
const kernel_op CPU_OP(DROPOUT_BWD) = {NULL, run, NULL, 1};

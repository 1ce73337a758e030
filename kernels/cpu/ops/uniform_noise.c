/* UNIFORM_NOISE: y = x + alpha * (2u - 1).
 *
 * An element has u of its word of random_words.h.
 */
#include "base/cpu.h"
#include "base/element.h"
#include "base/random_words.h"

typedef struct noise_job {
    const void *x;
    void *y;
    cpu_random random;
    float alpha;
    int32_t dtype;
} noise_job;

static void range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const noise_job *job = arg;
    float b0[CPU_TILE], b1[CPU_TILE];
    uint32_t words[CPU_TILE];
    (void)worker;
    for (int64_t i = begin; i < end; i += CPU_TILE) {
        const int64_t n = end - i < CPU_TILE ? end - i : CPU_TILE;
        const float *x = tile_in(b0, job->x, job->dtype, i, n);
        float *y = tile_out(b1, job->y, job->dtype, 0, i);
        cpu_random_words(&job->random, i, n, words);
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++)
            y[j] = x[j] + job->alpha * (2.0f * lathe_uniform_f32(words[j]) - 1.0f);
        if (y == b1)
            tile_done(b1, job->y, job->dtype, 0, i, n);
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    const int64_t n = lathe_desc_count(&k->in[0]);
    noise_job job = {a->in[0],
                     a->out[0],
                     {a->in[1], k->attrs.rng_stream, n},
                     (float)k->attrs.alpha,
                     k->in[0].dtype};
    k->host->parallel_for(n, CPU_GRAIN, range, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(UNIFORM_NOISE) = {NULL, run, NULL, 0};

/* DROPOUT and its derivative: y = x / (1-p) where the counter RNG keeps the element, else 0.
 *
 * Element e uses word e%4 of lathe_rng_block(rng[0], rng[1], rng_stream, e/4); kept iff u >= p.
 */
#include "cpu.h"
#include "element.h"
#include "lathe/rng.h"
#include "op_checks.h"

#define LANES 32 /* RNG blocks side by side */

LATHE_STATIC_ASSERT(CPU_TILE % (4 * LANES) == 0 && CPU_GRAIN % CPU_TILE == 0,
                    "a tile is whole groups of RNG blocks");

typedef struct dropout_job {
    const void *x;
    void *y;
    uint64_t seed, step, stream;
    float p, factor;
    int32_t dtype, accumulate;
} dropout_job;

/* lathe_rng_block of LANES consecutive indices, round by round across the lanes, which vectorises.
 * words[w][lane] is word w. first is a multiple of LANES, so that the high halves agree. */
static void rng_lanes(const dropout_job *job, uint64_t first, uint32_t words[4][LANES])
{
    uint32_t *c0 = words[0], *c1 = words[1], *c2 = words[2], *c3 = words[3];
    uint32_t k0 = (uint32_t)job->seed, k1 = (uint32_t)(job->seed >> 32);
    for (uint32_t l = 0; l < LANES; l++) {
        c0[l] = (uint32_t)first + l;
        c1[l] = (uint32_t)(first >> 32) ^ ((uint32_t)(job->stream >> 32) << 16);
        c2[l] = (uint32_t)job->stream;
        c3[l] = (uint32_t)job->step;
    }
    for (int round = 0; round < 10; round++) {
#pragma GCC ivdep
        for (int l = 0; l < LANES; l++) {
            const uint64_t a = (uint64_t)0xD2511F53u * c0[l];
            const uint64_t b = (uint64_t)0xCD9E8D57u * c2[l];
            c0[l] = (uint32_t)(b >> 32) ^ c1[l] ^ k0;
            c2[l] = (uint32_t)(a >> 32) ^ c3[l] ^ k1;
            c1[l] = (uint32_t)b;
            c3[l] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Factors (0 or 1/(1-p)) of the tile that starts at element `first`. */
static void mask_tile(const dropout_job *job, int64_t first, float *mask)
{
    uint32_t words[4][LANES];
    for (int64_t b = 0; b < CPU_TILE / 4; b += LANES) {
        rng_lanes(job, (uint64_t)(first / 4 + b), words);
        float f[4][LANES];
        for (int w = 0; w < 4; w++)
            for (int l = 0; l < LANES; l++)
                f[w][l] = lathe_uniform_f32(words[w][l]) >= job->p ? job->factor : 0.0f;
        float *out = mask + 4 * b;
#pragma GCC ivdep
        for (int l = 0; l < LANES; l++) {
            out[4 * l] = f[0][l];
            out[4 * l + 1] = f[1][l];
            out[4 * l + 2] = f[2][l];
            out[4 * l + 3] = f[3][l];
        }
    }
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

const kernel_op cpu_op_dropout = {kernel_check_dropout, run, NULL, 0};
const kernel_op cpu_op_dropout_bwd = {kernel_check_dropout, run, NULL, 1};

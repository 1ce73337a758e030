/* Initializes weights with random numbers. */
#include "model/family/param_init.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "lathe/rng.h"

#define BLOCKS 256 /* RNG blocks per batch; the arrays of a batch fit in L1 */

/* Compiled for several instruction sets, one of which is chosen at load. All do the same IEEE
 * operations, with different widths. Sanitized builds cannot run the resolver. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&                \
    !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define WIDE
#endif

typedef struct words {
    uint32_t v[4][BLOCKS];
} words;

static inline float as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* sqrt(-2 ln u), u = (word + 1/2) / 2^32 rounded to f32, in (0, 1]. */
static inline float radius(uint32_t word)
{
    const float u = ((float)word + 0.5f) * 0x1p-32f;
    uint32_t bits;
    memcpy(&bits, &u, sizeof bits);
    /* u = m 2^e with m in [sqrt(1/2), sqrt(2)) */
    const uint32_t shifted = bits - 0x3f3504f3u;
    const float e = (float)((int32_t)shifted >> 23);
    const float m = as_float((shifted & 0x7fffffu) + 0x3f3504f3u);
    /* ln m = 2 atanh(s), |s| < 0.172: s^11/11 is below 2^-30 of s */
    const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
    const float series = 1.0f / 3 + z * (1.0f / 5 + z * (1.0f / 7 + z * (1.0f / 9)));
    const float ln = e * 0.693147182464599609375f + 2.0f * (s + s * z * series);
    return sqrtf(-2.0f * ln > 0.0f ? -2.0f * ln : 0.0f);
}

/* cos and sin of 2 pi t, t = word / 2^32: the top three bits name the octant's quadrant, the rest
 * is an angle in [-pi/4, pi/4) for two Taylor polynomials. */
static inline void turn(uint32_t word, float *cosine, float *sine)
{
    const uint32_t rounded = word + 0x20000000u;
    const uint32_t quadrant = rounded >> 30;
    const float a = (float)(int32_t)(word - (quadrant << 30)) * (0x1p-32f * 6.2831853071795864769f);
    const float z = a * a;
    const float c = 1.0f + z * (-0.5f + z * (1.0f / 24 + z * (-1.0f / 720 + z * (1.0f / 40320))));
    const float s =
        a + a * z * (-1.0f / 6 + z * (1.0f / 120 + z * (-1.0f / 5040 + z * (1.0f / 362880))));
    const float x = quadrant & 1 ? s : c, y = quadrant & 1 ? c : s;
    *cosine = (quadrant + 1) & 2 ? -x : x;
    *sine = quadrant & 2 ? -y : y;
}

WIDE static void draw(uint64_t seed, uint64_t stream, uint64_t first, words *w)
{
    for (int i = 0; i < BLOCKS; i++) {
        const lathe_u32x4 block = lathe_rng_block(seed, 0, stream, first + (uint64_t)i);
        for (int k = 0; k < 4; k++)
            w->v[k][i] = block.v[k];
    }
}

WIDE static void normals(const words *w, float scale, float *restrict out)
{
    for (int i = 0; i < BLOCKS; i++)
        for (int pair = 0; pair < 2; pair++) {
            float c, s;
            turn(w->v[2 * pair + 1][i], &c, &s);
            const float r = radius(w->v[2 * pair][i]) * scale;
            out[4 * i + 2 * pair] = r * c;
            out[4 * i + 2 * pair + 1] = r * s;
        }
}

typedef struct job {
    float *out;
    int64_t n;
    uint64_t seed, stream;
    float scale;
    int32_t normal;
} job;

/* Batches [begin, end) of 4*BLOCKS elements. */
static void fill(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = arg;
    words w;
    float part[4 * BLOCKS];
    for (int64_t batch = begin; batch < end; batch++) {
        draw(j->seed, j->stream, (uint64_t)batch * BLOCKS, &w);
        if (j->normal)
            normals(&w, j->scale, part);
        else
            for (int i = 0; i < 4 * BLOCKS; i++)
                part[i] = j->scale * (2.0f * lathe_uniform_f32(w.v[i % 4][i / 4]) - 1.0f);
        const int64_t at = batch * 4 * BLOCKS, left = j->n - at;
        memcpy(j->out + at, part, (size_t)(left < 4 * BLOCKS ? left : 4 * BLOCKS) * sizeof *part);
    }
}

static void constant(float *out, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = value;
}

lathe_status lathe_param_init(const lathe_param *row, uint64_t seed, float *out)
{
    const int64_t n = lathe_desc_count(&row->desc);
    job j = {out,
             n,
             seed,
             lathe_hash64(row->name, (int64_t)strlen(row->name)),
             (float)row->init_scale,
             row->init == LATHE_INIT_NORMAL};
    switch (row->init) {
    case LATHE_INIT_MINOR_LEFT: /* until the weights are there: lathe_singular_rows_fill */
    case LATHE_INIT_MINOR_RIGHT:
    case LATHE_INIT_ZERO:
        constant(out, n, 0.0f);
        return LATHE_OK;
    case LATHE_INIT_ONE:
        constant(out, n, 1.0f);
        return LATHE_OK;
    case LATHE_INIT_CONSTANT:
        constant(out, n, (float)row->init_scale);
        return LATHE_OK;
    case LATHE_INIT_KAIMING_UNIFORM:
        if (row->desc.rank < 2 || row->desc.dims[1] < 1)
            return lathe_error(LATHE_E_ARG, "parameter %s: Kaiming initialisation needs a matrix",
                               row->name);
        j.scale = (float)(1.0 / sqrt((double)row->desc.dims[1]));
        break;
    case LATHE_INIT_NORMAL:
    case LATHE_INIT_UNIFORM:
        break;
    default:
        return lathe_error(LATHE_E_ARG, "parameter %s: unknown initialisation %d", row->name,
                           (int)row->init);
    }
    lathe_parallel_for((n + 4 * BLOCKS - 1) / (4 * BLOCKS), 64, fill, &j);
    return LATHE_OK;
}

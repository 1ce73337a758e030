/* hqq's encoder: scales from the range of each group, then zero points by half-quadratic splitting.
 *
 *   q = round(W s + z);  e = W - (q - z)/s;  r = shrink(e);  z = mean(q - (W - r) s)
 *
 * with shrink(e) = sign(e) max(|e| - |e|^(p-1)/beta, 0), p = 0.7, beta = 10: the solution for the
 * norm |e|^p. It stops after 20 rounds, or when the mean of |e| over the weight no longer falls, as
 * optimize_weights_proximal_legacy of the package does. s is the inverse of the scale that is
 * stored.
 */
#include <math.h>
#include <stdlib.h>

#include "hqq.h"

enum { ROUNDS = 20 };
#define NORM 0.7f
#define INVERSE_BETA 0.1f
#define NO_SHRINK 0.17f /* |e|^(p-2) >= beta below 0.1701: shrink(e) is 0 */

typedef struct state {
    codec_job job; /* rows: groups; cols: their size; first, so that a loop may use either */
    float *scale, *zero;
    double *error; /* sum of |e| of each group */
    uint32_t top;  /* largest code */
} state;

/* The first scale and zero point of a group. */
CODEC_BODY void begin_body(void *arg, int64_t begin, int64_t end)
{
    state *const s = arg;
    const int64_t size = s->job.cols;
    for (int64_t g = begin; g < end; g++) {
        const float *const w = s->job.w + g * size;
        float low = w[0], high = w[0];
        if (codec_largest(w, size) < 0)
            codec_set_bad(&s->job);
        for (int64_t i = 1; i < size; i++) {
            low = w[i] < low ? w[i] : low;
            high = w[i] > high ? w[i] : high;
        }
        const float range = high - low;
        float scale = range <= 1e-4f ? 1.0f : (float)s->top / range;
        scale = scale > 2e4f ? 2e4f : scale;
        s->scale[g] = scale;
        s->zero[g] = -low * scale;
    }
}
CODEC_LOOP(begin_groups, begin_body)

CODEC_BODY float code_of(float w, float scale, float zero, float top)
{
    float q = rintf(w * scale + zero);
    q = q < 0.0f ? 0.0f : q;
    return q > top ? top : q;
}

/* shrink(e), for the few that are large. */
static float shrink(float e)
{
    const float a = fabsf(e), left = a - INVERSE_BETA * powf(a, NORM - 1.0f);
    return a > NO_SHRINK && left > 0.0f ? copysignf(left, e) : 0.0f;
}

/* One round: the error with the present zero point, and the next zero point. The sums have 8 parts,
 * so that they vectorise; a group is a multiple of 8. */
CODEC_BODY void round_body(void *arg, int64_t begin, int64_t end)
{
    state *const s = arg;
    const int64_t size = s->job.cols;
    const float top = (float)s->top;
    for (int64_t g = begin; g < end; g++) {
        const float *const w = s->job.w + g * size;
        const float scale = s->scale[g], zero = s->zero[g];
        float moved[8] = {0}, error[8] = {0}, largest[8] = {0};
        for (int64_t i = 0; i < size; i += 8)
            for (int k = 0; k < 8; k++) {
                const float q = code_of(w[i + k], scale, zero, top);
                const float e = fabsf(w[i + k] - (q - zero) / scale);
                moved[k] += q - w[i + k] * scale;
                error[k] += e;
                largest[k] = e > largest[k] ? e : largest[k];
            }
        double sum = 0, errors = 0;
        float max = 0;
        for (int k = 0; k < 8; k++) {
            sum += (double)moved[k];
            errors += (double)error[k];
            max = largest[k] > max ? largest[k] : max;
        }
        for (int64_t i = 0; i < size && max > NO_SHRINK; i++) {
            const float e = w[i] - (code_of(w[i], scale, zero, top) - zero) / scale;
            sum += (double)(shrink(e) * scale);
        }
        s->error[g] = errors;
        s->zero[g] = (float)(sum / (double)size);
    }
}
CODEC_LOOP(round_groups, round_body)

static void put_parameter(void *plane, int64_t group, float x, int32_t dtype)
{
    if (dtype == LATHE_F32)
        ((float *)plane)[group] = x;
    else
        ((uint16_t *)plane)[group] =
            dtype == LATHE_F16 ? lathe_f32_to_f16(x) : lathe_f32_to_bf16(x);
}

/* Packs row `begin` to `end` of the words: the codes of one group from each run. */
CODEC_BODY void pack_body(void *arg, int64_t begin, int64_t end)
{
    const state *const s = arg;
    const hqq *const q = (const hqq *)(const void *)s->job.self;
    const int64_t size = s->job.cols, per_word = hqq_per_word(q->bits);
    const int64_t word_rows = hqq_word_rows(s->job.rows, q->bits);
    for (int64_t row = begin; row < end; row++)
        for (int64_t col = 0; col < size; col += 8) {
            uint32_t words[8] = {0};
            for (int64_t run = 0; run < per_word; run++) {
                const int64_t g = run * word_rows + row;
                for (int k = 0; k < 8; k++) {
                    words[k] <<= q->bits;
                    if (g < s->job.rows)
                        words[k] |= (uint32_t)(int32_t)code_of(
                            s->job.w[g * size + col + k], s->scale[g], s->zero[g], (float)s->top);
                }
            }
            for (int k = 0; k < 8; k++)
                if (q->bits == 3)
                    ((uint32_t *)s->job.made[HQQ_CODES])[row * size + col + k] = words[k];
                else
                    ((uint8_t *)s->job.made[HQQ_CODES])[row * size + col + k] = (uint8_t)words[k];
        }
}
CODEC_LOOP(pack_rows, pack_body)

static void optimize(state *s)
{
    double best = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double error = 0;
        codec_rows(&s->job, round_groups, s->job.rows, s->job.cols);
        for (int64_t g = 0; g < s->job.rows; g++)
            error += s->error[g];
        if (!(error < best))
            break;
        best = error;
    }
}

/* Stores scales and zero points; fails if the compute dtype cannot hold them. */
static lathe_status store_parameters(const hqq *q, const state *s)
{
    for (int64_t g = 0; g < s->job.rows; g++) {
        put_parameter(s->job.made[HQQ_SCALE], g, 1.0f / s->scale[g], q->dtype);
        put_parameter(s->job.made[HQQ_ZERO], g, s->zero[g], q->dtype);
        if (!isfinite(hqq_parameter(s->job.made[HQQ_SCALE], g, q->dtype)) ||
            !isfinite(hqq_parameter(s->job.made[HQQ_ZERO], g, q->dtype)))
            return lathe_fail(q->head.host, LATHE_E_NUMERIC,
                              "hqq: scale %g or zero point %g of a group is too large for the "
                              "compute dtype %s: set compute_dtype = \"float32\"",
                              1.0 / (double)s->scale[g], (double)s->zero[g],
                              lathe_dtype_name(q->dtype));
    }
    return LATHE_OK;
}

lathe_status hqq_encode_weight(const hqq *q, int64_t rows, int64_t cols, const float *w,
                               void *const *planes)
{
    const int64_t groups = rows * cols / q->group, word_rows = hqq_word_rows(groups, q->bits);
    state s = {.job = {.self = &q->head, .rows = groups, .cols = q->group, .w = w, .made = planes},
               .top = (1u << q->bits) - 1u};
    s.error = malloc((size_t)groups * (sizeof *s.error + 2 * sizeof *s.scale));
    if (s.error == NULL)
        return lathe_fail(q->head.host, LATHE_E_NOMEM, "hqq: no memory for %lld groups",
                          (long long)groups);
    s.scale = (float *)(void *)(s.error + groups);
    s.zero = s.scale + groups;
    codec_rows(&s.job, begin_groups, groups, q->group);
    lathe_status status = codec_encoded(&s.job, "hqq");
    if (status == LATHE_OK) {
        optimize(&s);
        codec_rows(&s.job, pack_rows, word_rows, q->group * hqq_per_word(q->bits));
        status = store_parameters(q, &s);
    }
    free(s.error);
    return status;
}

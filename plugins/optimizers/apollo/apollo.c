/* APOLLO: SGD whose step is scaled per channel (or per tensor) as AdamW's would be in a few random
 * directions.
 *
 *     R = P G, P random normal with variance 1/rank, new every gap steps;  N = Adam's direction of R
 *     channel: s_l = |N_l|/(|R_l| + 1e-8);  tensor: s = |N|/(|R| + 1e-8);   U = sqrt(scale)*s*G
 *     norm-growth limiter: |U| grows by at most 1% a step
 *     p -= lr*sqrt(1 - b2^t)/(1 - b1^t) * U;  p -= lr*wd*p
 *
 * APOLLO-Mini: rank 1, scale_type "tensor", scale 128. Matrices of layers are projected along their
 * shorter side when it is longer than the rank; everything else is AdamW. P is not kept: it is made
 * anew in the step's scratch from the counter RNG.
 * Source: arXiv:2412.05270; apollo-torch APOLLOAdamW; limiter arXiv:2410.01623. Deviation: numbers of
 * P come from Lathe's counter RNG, and with scale_front = false the source scales behind the limiter.
 */
#include "lathe/low_rank_adam.h"
#include "lathe/rng.h"

#define GROWTH 1.01
#define RNG_STREAM UINT64_C(0x41504f4c4c4f) /* apart from the streams of dropout and rounding */

typedef struct apollo {
    lathe_low_rank_adam low_rank;
    int32_t per_tensor, scale_front, limits;
    int32_t reserved;
} apollo;

enum { SLOT_M, SLOT_V, SLOT_NORM };
enum { FIELD_SCALE_TYPE = LATHE_LOW_RANK_N_FIELDS, FIELD_SCALE_FRONT, FIELD_LIMITER };

static const lathe_field fields[] = {
    LATHE_LOW_RANK_FIELDS("256", "random directions; 1: APOLLO-Mini",
                          "steps that a projection serves", "1.0",
                          "the update is multiplied by its root; 128 for APOLLO-Mini"),
    LATHE_FIELD_STRING("scale_type", "\"channel\"", "channel|tensor", "what shares a scale"),
    LATHE_FIELD_BOOL("scale_front", "false", "scale in front of the norm-growth limiter"),
    LATHE_FIELD_BOOL("norm_growth_limiter", "true", "an update's norm grows by at most 1% a step"),
};

static lathe_status read_values(const lathe_host *host, apollo *o, const lathe_value *values)
{
    (void)host;
    lathe_low_rank_adam_read(&o->low_rank, values);
    o->per_tensor = lathe_choice("channel|tensor", values[FIELD_SCALE_TYPE].s);
    o->scale_front = (int32_t)values[FIELD_SCALE_FRONT].i;
    o->limits = (int32_t)values[FIELD_LIMITER].i;
    return LATHE_OK;
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    const lathe_low_rank r = lathe_low_rank_param(((const apollo *)self)->low_rank.rank, param);
    const int32_t n = lathe_low_rank_moments(&r, param, out);
    if (r.rank == 0)
        return n;
    lathe_slot_vector(&out[SLOT_NORM], "update_norm", 1, LATHE_F32);
    return n + 1;
}

/* The projector, and a scale for every line. */
static int64_t scratch_of(const lathe_low_rank *r)
{
    return (r->rank * lathe_low_rank_length(r) + lathe_low_rank_lines(r)) * (int64_t)sizeof(float);
}

static int64_t scratch(void *self, const lathe_param_info *param)
{
    const lathe_low_rank r = lathe_low_rank_param(((const apollo *)self)->low_rank.rank, param);
    return r.rank > 0 ? scratch_of(&r) : 0;
}

/* ---- one tensor ---- */

#define MAX_PARTIALS 1024

typedef struct update {
    lathe_low_rank_update u;
    uint64_t seed, epoch; /* of the projector */
    float *projector, *line_scale;
    int64_t grain;
    double rank_root;
    double n2[MAX_PARTIALS], r2[MAX_PARTIALS]; /* squares of N and of R */
    double g2[MAX_PARTIALS];                   /* of G; with a scale per line, of the scaled G */
    int32_t per_tensor;
} update;

/* Pairs of normal numbers [begin, end) of the projector, by Box and Muller. */
static void fill_projector(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const update *const w = arg;
    const int64_t n = w->u.r.rank * lathe_low_rank_length(&w->u.r);
    (void)worker;
    for (int64_t pair = begin; pair < end; pair++) {
        const lathe_u32x4 b = lathe_rng_block(
            w->seed, w->epoch, RNG_STREAM ^ (uint64_t)w->u.x->tensor, (uint64_t)pair);
        const double radius = sqrt(-2.0 * log(1.0 - lathe_uniform_f64(b.v[0], b.v[1])));
        const double angle = 6.283185307179586 * lathe_uniform_f64(b.v[2], b.v[3]);
        w->projector[2 * pair] = (float)(radius * cos(angle) / w->rank_root);
        if (2 * pair + 1 < n)
            w->projector[2 * pair + 1] = (float)(radius * sin(angle) / w->rank_root);
    }
}

/* Squares of the scaled gradient of n lines, line by line. */
static void square_lines(const update *w, int64_t line, int64_t n, double *out)
{
    const int64_t length = lathe_low_rank_length(&w->u.r);
    memset(out, 0, sizeof(double) * LATHE_LINES);
    if (w->u.r.by_columns)
        for (int64_t j = 0; j < length; j++)
            for (int64_t l = 0; l < n; l++) {
                const double g = (double)(w->u.x->grad[j * w->u.r.cols + line + l] * w->u.scale);
                out[l] += g * g;
            }
    else
        for (int64_t l = 0; l < n; l++)
            for (int64_t j = 0; j < length; j++) {
                const double g = (double)(w->u.x->grad[(line + l) * w->u.r.cols + j] * w->u.scale);
                out[l] += g * g;
            }
}

static void square_lanes(const float (*x)[LATHE_LINES], int64_t rank, double *out)
{
    memset(out, 0, sizeof(double) * LATHE_LINES);
    for (int64_t k = 0; k < rank; k++)
        for (int l = 0; l < LATHE_LINES; l++)
            out[l] += (double)x[k][l] * (double)x[k][l];
}

/* Moments and scales of lines [begin, end). */
static void measure(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    update *const w = arg;
    float r[LATHE_MAX_PROJECTION][LATHE_LINES];
    double all_n = 0.0, all_r = 0.0, all_g = 0.0;
    (void)worker;
    for (int64_t at = begin; at < end; at += LATHE_LINES) {
        const int64_t n = end - at < LATHE_LINES ? end - at : LATHE_LINES;
        double g2[LATHE_LINES], r2[LATHE_LINES], n2[LATHE_LINES];
        lathe_low_rank_project(&w->u.r, w->u.x->grad, w->u.scale, at, n, r[0]);
        square_lanes((const float(*)[LATHE_LINES])r, w->u.r.rank, r2);
        lathe_low_rank_direction(&w->u, at, n, r[0]);
        square_lanes((const float(*)[LATHE_LINES])r, w->u.r.rank, n2);
        square_lines(w, at, n, g2);
        for (int64_t l = 0; l < n; l++) {
            const double s = sqrt(n2[l]) / (sqrt(r2[l]) + 1e-8);
            w->line_scale[at + l] = w->per_tensor ? 1.0f : (float)s;
            all_n += n2[l];
            all_r += r2[l];
            all_g += w->per_tensor ? g2[l] : s * s * g2[l];
        }
    }
    w->n2[begin / w->grain] = all_n;
    w->r2[begin / w->grain] = all_r;
    w->g2[begin / w->grain] = all_g;
}

static double root_of_sum(const update *w, const double *partial)
{
    const int64_t lines = lathe_low_rank_lines(&w->u.r);
    double sum = 0.0;
    for (int64_t k = 0; k < (lines + w->grain - 1) / w->grain; k++)
        sum += partial[k];
    return sqrt(sum);
}

static void apply(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const update *const w = arg;
    float *const p = w->u.x->param;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float s = w->line_scale[w->u.r.by_columns ? i % w->u.r.cols : i / w->u.r.cols];
        const float moved = fmaf(w->u.factor, w->u.x->grad[i] * w->u.scale * s, p[i]);
        p[i] = fmaf(-w->u.decay, moved, moved);
    }
    lathe_shadow_refresh(w->u.x, begin, end);
}

static lathe_status project(const apollo *o, const lathe_optimizer_step *s, update *w)
{
    const lathe_host *const host = lathe_optimizer_host(o);
    const lathe_optimizer_tensor *const x = w->u.x;
    float *const kept_norm = x->slots[SLOT_NORM];
    LATHE_TRY(lathe_scratch_check(host, s, x, scratch_of(&w->u.r)));
    const int64_t lines = lathe_low_rank_lines(&w->u.r);
    const int64_t n = w->u.r.rank * lathe_low_rank_length(&w->u.r);
    w->projector = s->scratch;
    w->line_scale = w->projector + n;
    w->u.r.projector = w->projector;
    w->rank_root = sqrt((double)w->u.r.rank);
    w->seed = s->seed;
    w->epoch = (uint64_t)((s->step - 1) / o->low_rank.gap);
    w->per_tensor = o->per_tensor;
    host->parallel_for((n + 1) / 2, LATHE_CHUNK_ELEMENTS / 4, fill_projector, w);
    const int64_t fit = (lines + MAX_PARTIALS - 1) / MAX_PARTIALS;
    w->grain = (fit + LATHE_LINES - 1) / LATHE_LINES * LATHE_LINES;
    host->parallel_for(lines, w->grain, measure, w);
    double by = o->per_tensor ? root_of_sum(w, w->n2) / (root_of_sum(w, w->r2) + 1e-8) : 1.0;
    const double root = sqrt(o->low_rank.scale);
    double norm = by * root_of_sum(w, w->g2) * (o->scale_front ? root : 1.0);
    if (o->limits && s->step > 1) {
        const double growth = norm / ((double)*kept_norm + 1e-8);
        const double limiter = (growth > GROWTH ? growth : GROWTH) / GROWTH;
        by /= limiter;
        norm /= limiter;
    }
    if (o->limits)
        *kept_norm = (float)norm;
    w->u.factor *= (float)(by * root);
    host->parallel_for(x->n, LATHE_CHUNK_ELEMENTS, apply, w);
    return LATHE_OK;
}

static lathe_status update_tensor(void *ctx, const lathe_optimizer_step *s,
                                  const lathe_optimizer_tensor *x)
{
    const apollo *const o = ctx;
    update w = {.u = lathe_low_rank_update_of(&o->low_rank, s, x)};
    if (x->slots[SLOT_NORM] != NULL)
        return project(o, s, &w);
    lathe_low_rank_plain(lathe_optimizer_host(o), &w.u);
    return LATHE_OK;
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    return lathe_tensors_run(lathe_optimizer_host(self), s, 2, update_tensor, self);
}

LATHE_INSTANCE(apollo, read_values)

LATHE_OPTIMIZER_TABLE(apollo, .slots = slots, .partition = lathe_low_rank_partition,
                      .scalars = lathe_low_rank_scalars, .step = step, .scratch = scratch);

LATHE_OPTIMIZER_ENTRY(
    apollo, .version = "1.0.0",
    .summary = "SGD scaled like AdamW, by a few random directions of the gradient",
    .source = "arXiv:2412.05270; apollo-torch");

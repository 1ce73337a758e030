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
#include "lathe/low_rank.h"
#include "lathe/optimizer_kit.h"
#include "lathe/rng.h"

#define GROWTH 1.01
#define RNG_STREAM UINT64_C(0x41504f4c4c4f) /* apart from the streams of dropout and rounding */

typedef struct apollo {
    lathe_optimizer_common common;
    double beta1, beta2, eps, weight_decay, scale;
    int64_t rank, gap;
    int32_t per_tensor, scale_front, limits;
    int32_t reserved;
} apollo;

enum { SLOT_M, SLOT_V, SLOT_NORM };
enum {
    FIELD_LR,
    FIELD_BETA1,
    FIELD_BETA2,
    FIELD_EPS,
    FIELD_WEIGHT_DECAY,
    FIELD_RANK,
    FIELD_GAP,
    FIELD_SCALE,
    FIELD_SCALE_TYPE,
    FIELD_SCALE_FRONT,
    FIELD_LIMITER
};

static const lathe_field fields[] = {
    LATHE_LR_FIELD("1e-3"),
    LATHE_BETA_FIELD("beta1", "0.9", "decay of the first moment"),
    LATHE_BETA_FIELD("beta2", "0.999", "decay of the second moment"),
    LATHE_EPS_FIELD("1e-6"),
    LATHE_WEIGHT_DECAY_FIELD("0.0"),
    LATHE_FIELD_INT("rank", "256", 1, LATHE_MAX_PROJECTION, "directions",
                    "random directions; 1: APOLLO-Mini"),
    LATHE_FIELD_INT("update_proj_gap", "200", 1, 1e9, "steps", "steps that a projection serves"),
    LATHE_FIELD_FLOAT("scale", "1.0", 0, 1e9, "1",
                      "the update is multiplied by its root; 128 for APOLLO-Mini"),
    LATHE_FIELD_STRING("scale_type", "\"channel\"", "channel|tensor", "what shares a scale"),
    LATHE_FIELD_BOOL("scale_front", "false", "scale in front of the norm-growth limiter"),
    LATHE_FIELD_BOOL("norm_growth_limiter", "true", "an update's norm grows by at most 1% a step"),
};

static lathe_status read_values(const lathe_host *host, apollo *o, const lathe_value *values)
{
    (void)host;
    o->common.lr = values[FIELD_LR].f;
    o->beta1 = values[FIELD_BETA1].f;
    o->beta2 = values[FIELD_BETA2].f;
    o->eps = values[FIELD_EPS].f;
    o->weight_decay = values[FIELD_WEIGHT_DECAY].f;
    o->rank = values[FIELD_RANK].i;
    o->gap = values[FIELD_GAP].i;
    o->scale = values[FIELD_SCALE].f;
    o->per_tensor = lathe_choice("channel|tensor", values[FIELD_SCALE_TYPE].s);
    o->scale_front = (int32_t)values[FIELD_SCALE_FRONT].i;
    o->limits = (int32_t)values[FIELD_LIMITER].i;
    return LATHE_OK;
}

/* rank 0: the parameter is not projected. */
static lathe_low_rank geometry(const apollo *o, int32_t role, int64_t rows, int64_t cols)
{
    lathe_low_rank r = {.rows = rows, .cols = cols, .by_columns = rows < cols};
    const int64_t shorter = rows < cols ? rows : cols;
    if ((role == LATHE_ROLE_MATRIX || role == LATHE_ROLE_ADAPTER) && shorter > o->rank)
        r.rank = o->rank;
    return r;
}

static lathe_low_rank geometry_of(const apollo *o, const lathe_param_info *param)
{
    const int64_t rows = param->desc.rank > 1 ? param->desc.dims[0] : 1;
    const int64_t n = lathe_desc_count(&param->desc);
    return geometry(o, param->role, rows, rows > 0 ? n / rows : 0);
}

static int32_t partition(void *self, const lathe_param_info *param)
{
    return geometry_of(self, param).rank > 0 ? LATHE_PARTITION_TENSOR : LATHE_PARTITION_ELEMENT;
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    const lathe_low_rank r = geometry_of(self, param);
    lathe_slot_like(&out[SLOT_M], "exp_avg", param, LATHE_F32);
    lathe_slot_like(&out[SLOT_V], "exp_avg_sq", param, LATHE_F32);
    if (r.rank == 0)
        return 2;
    out[SLOT_M].desc = out[SLOT_V].desc =
        lathe_desc_2d(LATHE_F32, r.rank, lathe_low_rank_lines(&r));
    lathe_slot_vector(&out[SLOT_NORM], "update_norm", 1, LATHE_F32);
    return 3;
}

/* The projector, and a scale for every line. */
static int64_t scratch_of(const lathe_low_rank *r)
{
    return (r->rank * lathe_low_rank_length(r) + lathe_low_rank_lines(r)) * (int64_t)sizeof(float);
}

static int64_t scratch(void *self, const lathe_param_info *param)
{
    const lathe_low_rank r = geometry_of(self, param);
    return r.rank > 0 ? scratch_of(&r) : 0;
}

static void scalars(void *self, int64_t step, double *out)
{
    const apollo *const o = self;
    out[0] = sqrt(lathe_bias_correction(o->beta2, step)) / lathe_bias_correction(o->beta1, step);
}

/* ---- one tensor ---- */

#define MAX_PARTIALS 1024

typedef struct update {
    const lathe_optimizer_tensor *x;
    lathe_low_rank r;
    lathe_adam_numbers adam;
    float scale; /* on the gradient */
    float factor, decay;
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
    const int64_t n = w->r.rank * lathe_low_rank_length(&w->r);
    (void)worker;
    for (int64_t pair = begin; pair < end; pair++) {
        const lathe_u32x4 b =
            lathe_rng_block(w->seed, w->epoch, RNG_STREAM ^ (uint64_t)w->x->tensor, (uint64_t)pair);
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
    const int64_t length = lathe_low_rank_length(&w->r);
    memset(out, 0, sizeof(double) * LATHE_LINES);
    if (w->r.by_columns)
        for (int64_t j = 0; j < length; j++)
            for (int64_t l = 0; l < n; l++) {
                const double g = (double)(w->x->grad[j * w->r.cols + line + l] * w->scale);
                out[l] += g * g;
            }
    else
        for (int64_t l = 0; l < n; l++)
            for (int64_t j = 0; j < length; j++) {
                const double g = (double)(w->x->grad[(line + l) * w->r.cols + j] * w->scale);
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
    const int64_t lines = lathe_low_rank_lines(&w->r);
    float *const m = w->x->slots[SLOT_M], *const v = w->x->slots[SLOT_V];
    float r[LATHE_MAX_PROJECTION][LATHE_LINES];
    double all_n = 0.0, all_r = 0.0, all_g = 0.0;
    (void)worker;
    for (int64_t at = begin; at < end; at += LATHE_LINES) {
        const int64_t n = end - at < LATHE_LINES ? end - at : LATHE_LINES;
        double g2[LATHE_LINES], r2[LATHE_LINES], n2[LATHE_LINES];
        lathe_low_rank_project(&w->r, w->x->grad, w->scale, at, n, r[0]);
        square_lanes((const float(*)[LATHE_LINES])r, w->r.rank, r2);
        for (int64_t k = 0; k < w->r.rank; k++)
            lathe_adam_direction(&w->adam, r[k], m + k * lines + at, v + k * lines + at, r[k], n);
        square_lanes((const float(*)[LATHE_LINES])r, w->r.rank, n2);
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
    const int64_t lines = lathe_low_rank_lines(&w->r);
    double sum = 0.0;
    for (int64_t k = 0; k < (lines + w->grain - 1) / w->grain; k++)
        sum += partial[k];
    return sqrt(sum);
}

static void apply(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const update *const w = arg;
    float *const p = w->x->param;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float s = w->line_scale[w->r.by_columns ? i % w->r.cols : i / w->r.cols];
        const float moved = fmaf(w->factor, w->x->grad[i] * w->scale * s, p[i]);
        p[i] = fmaf(-w->decay, moved, moved);
    }
    lathe_shadow_refresh(w->x, begin, end);
}

static lathe_status project(const apollo *o, const lathe_optimizer_step *s, update *w)
{
    const lathe_host *const host = o->common.host;
    const lathe_optimizer_tensor *const x = w->x;
    float *const kept_norm = x->slots[SLOT_NORM];
    w->r = geometry(o, LATHE_ROLE_MATRIX, x->rows, x->cols);
    if (s->scratch == NULL || s->scratch_bytes < scratch_of(&w->r))
        return lathe_fail(host, LATHE_E_ARG,
                          "tensor %d needs %lld bytes of scratch, the step has %lld", x->tensor,
                          (long long)scratch_of(&w->r), (long long)s->scratch_bytes);
    const int64_t lines = lathe_low_rank_lines(&w->r);
    const int64_t n = w->r.rank * lathe_low_rank_length(&w->r);
    w->projector = s->scratch;
    w->line_scale = w->projector + n;
    w->r.projector = w->projector;
    w->rank_root = sqrt((double)w->r.rank);
    w->seed = s->seed;
    w->epoch = (uint64_t)((s->step - 1) / o->gap);
    w->per_tensor = o->per_tensor;
    host->parallel_for((n + 1) / 2, LATHE_CHUNK_ELEMENTS / 4, fill_projector, w);
    const int64_t fit = (lines + MAX_PARTIALS - 1) / MAX_PARTIALS;
    w->grain = (fit + LATHE_LINES - 1) / LATHE_LINES * LATHE_LINES;
    host->parallel_for(lines, w->grain, measure, w);
    double by = o->per_tensor ? root_of_sum(w, w->n2) / (root_of_sum(w, w->r2) + 1e-8) : 1.0;
    const double root = sqrt(o->scale);
    double norm = by * root_of_sum(w, w->g2) * (o->scale_front ? root : 1.0);
    if (o->limits && s->step > 1) {
        const double growth = norm / ((double)*kept_norm + 1e-8);
        const double limiter = (growth > GROWTH ? growth : GROWTH) / GROWTH;
        by /= limiter;
        norm /= limiter;
    }
    if (o->limits)
        *kept_norm = (float)norm;
    w->factor *= (float)(by * root);
    host->parallel_for(x->n, LATHE_CHUNK_ELEMENTS, apply, w);
    return LATHE_OK;
}

static void update_elements(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const update *const w = arg;
    (void)worker;
    lathe_adam_elements(&w->adam, w->x, w->scale, w->factor, w->decay, begin, end);
}

static lathe_status update_tensor(const apollo *o, const lathe_optimizer_step *s,
                                  const lathe_optimizer_tensor *x)
{
    const double lr = (double)s->scalars[LATHE_SCALAR_LR] * x->lr_mult;
    update w = {.x = x,
                .adam = lathe_adam_numbers_of(o->beta1, o->beta2, o->eps),
                .scale = s->scalars[LATHE_SCALAR_GRAD_SCALE],
                .factor = (float)(-lr * (double)s->scalars[LATHE_SCALAR_USER]),
                .decay = (float)(lr * o->weight_decay * x->weight_decay_mult)};
    if (x->slots[SLOT_NORM] != NULL)
        return project(o, s, &w);
    o->common.host->parallel_for(x->n, LATHE_CHUNK_ELEMENTS, update_elements, &w);
    return LATHE_OK;
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    const apollo *const o = self;
    for (int32_t t = 0; t < s->n_tensors; t++) {
        LATHE_TRY(lathe_tensor_check(o->common.host, s, t, 2));
        if (s->tensors[t].n > 0)
            LATHE_TRY(update_tensor(o, s, &s->tensors[t]));
    }
    return LATHE_OK;
}

LATHE_INSTANCE(apollo, read_values)

static const lathe_optimizer_v1 apollo_table = {
    .size = (uint32_t)sizeof apollo_table,
    .revision = LATHE_OPTIMIZER_REVISION,
    .slots = slots,
    .partition = partition,
    .base_lr = lathe_optimizer_lr,
    .scalars = scalars,
    .step = step,
    .scratch = scratch,
};

LATHE_OPTIMIZER_ENTRY(
    apollo, .version = "1.0.0",
    .summary = "SGD scaled like AdamW, by a few random directions of the gradient",
    .source = "arXiv:2412.05270; apollo-torch");

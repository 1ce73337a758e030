/* APOLLO: SGD with a scale per channel (or per tensor), which is estimated from AdamW's step in a
 * few random directions.
 *
 *     R = P G, P random normal with variance 1/rank, new every `gap` steps
 *     N = Adam's direction of R
 *     channel: s_l = |N_l|/(|R_l| + 1e-8);  tensor: s = |N|/(|R| + 1e-8);   U = sqrt(scale)*s*G
 *     norm-growth limiter: |U| grows by at most 1% per step
 *     p -= lr*sqrt(1 - b2^t)/(1 - b1^t) * U;  p -= lr*wd*p
 *
 * APOLLO-Mini: rank 1, scale_type "tensor", scale 128. Matrices of layers are projected along their
 * shorter side if it is longer than the rank; all other tensors use AdamW. P is not stored: each
 * step computes it again in scratch from the counter RNG.
 *
 * Source: arXiv:2412.05270; apollo-torch APOLLOAdamW; limiter arXiv:2410.01623. Deviation: the
 * numbers of P come from Lathe's counter RNG. With scale_front = false, the source applies the
 * scale after the limiter.
 */
#include "apollo.h"

typedef struct apollo {
    lathe_low_rank_adam low_rank;
    int32_t per_tensor, scale_front, limits;
    int32_t reserved;
} apollo;

enum { FIELD_SCALE_TYPE = LATHE_LOW_RANK_N_FIELDS, FIELD_SCALE_FRONT, FIELD_LIMITER };

static const lathe_field fields[] = {
    LATHE_LOW_RANK_FIELDS("256", "random directions; 1: APOLLO-Mini",
                          "steps that a projection serves", "1.0",
                          "the update is multiplied by its root; 128 for APOLLO-Mini"),
    LATHE_FIELD_STRING("scale_type", "\"channel\"", "channel|tensor",
                       "whether each channel or each tensor has its own scale"),
    LATHE_FIELD_BOOL("scale_front", "false",
                     "multiply by the scale before the norm-growth limiter instead of after it"),
    LATHE_FIELD_BOOL("norm_growth_limiter", "true",
                     "limit the growth of an update's norm to 1% per step"),
};

static lathe_status read_values(const lathe_host *host, apollo *o, const lathe_value *values)
{
    if (values[FIELD_SCALE_FRONT].is_explicit && !values[FIELD_LIMITER].i)
        lathe_warn_at(host, "scale_front",
                      "optimizer.scale_front has no effect: norm_growth_limiter is false");
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

/* Scratch: the projector, and a scale for every line. */
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

typedef struct update {
    lathe_low_rank_update u;
    apollo_step s;
    uint64_t seed;
    float *projector, *line_scale;
    int64_t run;
    double n2[MAX_PARTIALS], r2[MAX_PARTIALS]; /* squares of N and of R */
    double g2[MAX_PARTIALS];                   /* of G; with a scale per line, of the scaled G */
} update;

/* Computes pairs [begin, end) of the projector. */
static void fill_projector(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const update *const w = arg;
    const int64_t n = w->u.r.rank * lathe_low_rank_length(&w->u.r);
    (void)worker;
    for (int64_t pair = begin; pair < end; pair++) {
        float both[2];
        apollo_pair(&w->s, w->seed, w->u.x->tensor, pair, both);
        w->projector[2 * pair] = both[0];
        if (2 * pair + 1 < n)
            w->projector[2 * pair + 1] = both[1];
    }
}

/* Computes the squares of the scaled gradient of n lines, line by line. */
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

/* Computes moments and scales of lines [begin, end). */
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
            const double s = apollo_scale(n2[l], r2[l]);
            w->line_scale[at + l] = w->s.per_tensor ? 1.0f : (float)s;
            all_n += n2[l];
            all_r += r2[l];
            all_g += w->s.per_tensor ? g2[l] : s * s * g2[l];
        }
    }
    w->n2[begin / w->run] = all_n;
    w->r2[begin / w->run] = all_r;
    w->g2[begin / w->run] = all_g;
}

static double sum_of(const update *w, const double *partial)
{
    const int64_t lines = lathe_low_rank_lines(&w->u.r);
    double sum = 0.0;
    for (int64_t k = 0; k < (lines + w->run - 1) / w->run; k++)
        sum += partial[k];
    return sum;
}

static void apply(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const update *const w = arg;
    float *const p = w->u.x->param;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float s = w->line_scale[w->u.r.by_columns ? i % w->u.r.cols : i / w->u.r.cols];
        p[i] = lathe_low_rank_move(p[i], w->u.x->grad[i] * w->u.scale * s, w->u.factor, w->u.decay);
    }
    lathe_shadow_refresh(w->u.x, begin, end);
}

static apollo_step step_of(const apollo *o, int64_t step, int64_t rank)
{
    const apollo_step s = {.epoch = (uint64_t)((step - 1) / o->low_rank.gap),
                           .rank_root = sqrt((double)rank),
                           .root = sqrt(o->low_rank.scale),
                           .per_tensor = o->per_tensor,
                           .scale_front = o->scale_front,
                           .limits = o->limits,
                           .is_first = step == 1};
    return s;
}

static lathe_status project(const apollo *o, const lathe_optimizer_step *s, update *w)
{
    const lathe_host *const host = lathe_optimizer_host(o);
    const lathe_optimizer_tensor *const x = w->u.x;
    LATHE_TRY(lathe_scratch_check(host, s, x, scratch_of(&w->u.r)));
    const int64_t lines = lathe_low_rank_lines(&w->u.r);
    const int64_t n = w->u.r.rank * lathe_low_rank_length(&w->u.r);
    w->projector = s->scratch;
    w->line_scale = w->projector + n;
    w->u.r.projector = w->projector;
    w->s = step_of(o, s->step, w->u.r.rank);
    w->seed = s->seed;
    host->parallel_for((n + 1) / 2, LATHE_CHUNK_ELEMENTS / 4, fill_projector, w);
    w->run = apollo_run(lines);
    host->parallel_for(lines, w->run, measure, w);
    w->u.factor *= apollo_limit(&w->s, sum_of(w, w->n2), sum_of(w, w->r2), sum_of(w, w->g2),
                                x->slots[SLOT_NORM]);
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

/* ---- on a device whose memory the host cannot access ---- */

/* Parts of the shared memory:
 *   |squares|factor, padded|projector, one extra|line scales|R|directions| */
static int64_t room_place(const lathe_low_rank *r, void *memory, apollo_args *out)
{
    const int64_t lines = lathe_low_rank_lines(r), n = r->rank * lathe_low_rank_length(r);
    const int64_t n_doubles = 3 * lines + 1, n_floats = n + 1 + lines + 2 * r->rank * lines;
    if (out != NULL) {
        out->squares = memory;
        out->factor = (float *)(void *)(out->squares + 3 * lines);
        out->projector = out->factor + 2;
        out->line_scale = out->projector + n + 1;
        out->low.r = out->line_scale + lines;
        out->low.u = out->low.r + r->rank * lines;
        out->low.projector = out->projector;
    }
    return n_doubles * (int64_t)sizeof(double) + n_floats * (int64_t)sizeof(float);
}

static void room(void *self, const lathe_param_info *param, lathe_optimizer_room *out)
{
    const lathe_low_rank r = lathe_low_rank_param(((const apollo *)self)->low_rank.rank, param);
    out->shared = r.rank > 0 ? room_place(&r, NULL, NULL) : 0;
}

static lathe_status queue(void *self, const lathe_optimizer_queue *todo)
{
    const apollo *const o = self;
    apollo_args a = {.step.epoch = 0};
    const int64_t bytes = (int64_t)sizeof a;
    LATHE_TRY(lathe_low_rank_queue_plain(&o->low_rank, todo, SLOT_NORM, &a.low));
    for (int32_t t = 0; t < todo->step->n_tensors; t++) {
        const lathe_optimizer_tensor *const x = todo->step->tensors + t;
        if (!lathe_low_rank_queue_tensor(&o->low_rank, todo, t, &a.low))
            continue;
        const lathe_low_rank r = lathe_low_rank_of(a.low.rank, LATHE_ROLE_MATRIX, x->rows, x->cols);
        const int64_t n_pairs = (a.low.rank * a.low.length + 1) / 2;
        (void)room_place(&r, todo->shared, &a);
        a.step = step_of(o, todo->step->step, a.low.rank);
        LATHE_TRY(todo->launch(
            todo->ctx, "apollo_projector",
            (n_pairs + LATHE_ELEMENTWISE_THREADS - 1) / LATHE_ELEMENTWISE_THREADS, &a, bytes));
        LATHE_TRY(lathe_low_rank_queue_project(todo, &a.low));
        LATHE_TRY(todo->launch(todo->ctx, "apollo_lines",
                               (a.low.lines + APOLLO_LINES - 1) / APOLLO_LINES, &a, bytes));
        LATHE_TRY(todo->launch(todo->ctx, "apollo_limiter", 1, &a, bytes));
        LATHE_TRY(todo->launch(todo->ctx, "apollo_apply", lathe_queue_chunks(x), &a, bytes));
    }
    return LATHE_OK;
}

LATHE_INSTANCE(apollo, read_values)

LATHE_OPTIMIZER_TABLE(apollo, .slots = slots, .partition = lathe_low_rank_partition,
                      .scalars = lathe_low_rank_scalars, .step = step,
                      .cuda_image = LATHE_CUDA_IMAGE, .scratch = scratch, .queue = queue,
                      .room = room);

LATHE_OPTIMIZER_ENTRY(
    apollo, .version = "1.0.0",
    .summary = "SGD scaled like AdamW, by a few random directions of the gradient",
    .source = "arXiv:2412.05270; apollo-torch");

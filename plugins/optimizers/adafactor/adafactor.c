/* Adafactor: stores a second moment per row and column instead of one per element.
 *
 *     R = b*R + (1-b)*mean over columns of (g*g + e1);  C likewise over rows;  b = 1 - t^decay_rate
 *     u = g / sqrt(R C / mean(R));   vectors: V = b*V + (1-b)*(g*g + e1), u = g/sqrt(V)
 *     u = u / max(1, rms(u)/clip_threshold) * a,   a = rho * max(e2, rms(p))  (scale_parameter)
 *     beta1: m = b1*m + (1-b1)*u, u = m;    p = p*(1 - wd*a) - u
 *
 * rho is lr. With relative_step it is min(1e-2, 1/sqrt(t)), or min(1e-6 t, 1/sqrt(t)) with
 * warmup_init, times the schedule's factor for a base rate of 1. Source: arXiv:1804.04235;
 * transformers Adafactor, operation by operation, with sums in double.
 */
#include "adafactor.h"
#include "lathe/kit/optimizer_kit.h"
#include "lathe/kit/tensor_chunks.h"

typedef struct adafactor {
    lathe_optimizer_common common; /* lr: 1 with relative_step */
    double eps1, eps2, clip, decay_rate, beta1, weight_decay;
    int32_t has_beta1, scales_by_parameter, relative_step, warmup_init;
} adafactor;

enum {
    FIELD_LR,
    FIELD_EPS1,
    FIELD_EPS2,
    FIELD_CLIP,
    FIELD_DECAY_RATE,
    FIELD_BETA1,
    FIELD_WEIGHT_DECAY,
    FIELD_SCALE_PARAMETER,
    FIELD_RELATIVE_STEP,
    FIELD_WARMUP_INIT
};

static const lathe_field fields[] = {
    LATHE_FIELD_FLOAT("lr", NULL, 0, 1e3, "1",
                      "learning rate; the schedule multiplies it; unset: relative_step"),
    LATHE_FIELD_FLOAT("eps1", "1e-30", 0, 1, "1", "added to the squared gradient"),
    LATHE_FIELD_FLOAT("eps2", "1e-3", 0, 1, "1",
                      "lower bound of the parameter's size in scale_parameter"),
    {"clip_threshold", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "1.0", 0, 1e6, NULL, "1",
     "largest root mean square of an update before it is multiplied by the learning rate"},
    {"decay_rate", LATHE_T_FLOAT, LATHE_FIELD_MAX_EXCLUSIVE, "-0.8", -10, 0, NULL, "1",
     "exponent of the step in the decay of the second moment"},
    LATHE_BETA_FIELD("beta1", NULL, "decay of the first moment; unset: no first moment is kept"),
    LATHE_WEIGHT_DECAY_FIELD("0.0"),
    LATHE_FIELD_BOOL("scale_parameter", "true",
                     "multiply the learning rate by the root mean square of the parameter"),
    LATHE_FIELD_BOOL("relative_step", NULL,
                     "compute the learning rate from the step; unset: true if lr is unset"),
    LATHE_FIELD_BOOL("warmup_init", "false", "relative_step begins at 1e-6 t"),
};

static lathe_status read_values(const lathe_host *host, adafactor *o, const lathe_value *values)
{
    const lathe_value *const lr = &values[FIELD_LR], *const relative = &values[FIELD_RELATIVE_STEP];
    o->relative_step = relative->is_set ? (int32_t)relative->i : !lr->is_set;
    o->common.lr = o->relative_step ? 1.0 : lr->f;
    o->eps1 = values[FIELD_EPS1].f;
    o->eps2 = values[FIELD_EPS2].f;
    o->clip = values[FIELD_CLIP].f;
    o->decay_rate = values[FIELD_DECAY_RATE].f;
    o->has_beta1 = values[FIELD_BETA1].is_set;
    o->beta1 = o->has_beta1 ? values[FIELD_BETA1].f : 0.0;
    o->weight_decay = values[FIELD_WEIGHT_DECAY].f;
    o->scales_by_parameter = (int32_t)values[FIELD_SCALE_PARAMETER].i;
    o->warmup_init = (int32_t)values[FIELD_WARMUP_INIT].i;
    if (values[FIELD_EPS2].is_explicit && !o->scales_by_parameter)
        lathe_warn_at(host, "eps2", "optimizer.eps2 has no effect: scale_parameter is false");
    if (o->relative_step && lr->is_set)
        return lathe_fail_at(host, LATHE_E_CONFIG, "lr",
                             "lr is %g and relative_step is true: set only one of them", lr->f);
    if (!o->relative_step && !lr->is_set)
        return lathe_fail_at(host, LATHE_E_CONFIG, "lr",
                             "lr must be set when relative_step is false");
    if (o->warmup_init && !o->relative_step)
        return lathe_fail_at(host, LATHE_E_CONFIG, "warmup_init",
                             "warmup_init needs relative_step; lr is %g", lr->f);
    return LATHE_OK;
}

static int32_t partition(void *self, const lathe_param_info *param)
{
    (void)self, (void)param;
    return LATHE_PARTITION_TENSOR;
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    const adafactor *const o = self;
    int32_t n = 0;
    if (param->desc.rank > 1) {
        const int64_t rows = param->desc.dims[0];
        lathe_slot_vector(&out[n++], "exp_avg_sq_row", rows, LATHE_F32);
        lathe_slot_vector(&out[n++], "exp_avg_sq_col",
                          rows > 0 ? lathe_desc_count(&param->desc) / rows : 0, LATHE_F32);
    } else {
        lathe_slot_like(&out[n++], "exp_avg_sq", param, LATHE_F32);
    }
    if (o->has_beta1)
        lathe_slot_like(&out[n++], "exp_avg", param, LATHE_F32);
    return n;
}

/* ---- one tensor ---- */

#define COLS_AT_ONCE 64

/* Arguments of the passes over a tensor. */
typedef struct pass {
    const lathe_host *host;
    const lathe_optimizer_tensor *x;
    adafactor_step s;
    adafactor_tensor t;
    float *row, *col; /* factors of a matrix; NULL: v is used */
    float *v, *m;     /* m NULL: no first moment */
    float scale;      /* factor on the gradient */
    int64_t run;
    double partial[ADAFACTOR_PARTIALS];
} pass;

static double sum_of(const pass *w, int64_t n)
{
    double sum = 0.0;
    for (int64_t k = 0; k < (n + w->run - 1) / w->run; k++)
        sum += w->partial[k];
    return sum;
}

/* Calls fn for each run of a loop over n. */
static void spread(pass *w, int64_t n, int64_t run, lathe_range_fn fn)
{
    w->run = run;
    if (n > 0)
        w->host->parallel_for(n, run, fn, w);
}

static void square_params(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    pass *const w = arg;
    double sum = 0.0;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        sum += (double)w->x->param[i] * (double)w->x->param[i];
    w->partial[begin / w->run] = sum;
}

static float square(const pass *w, int64_t i)
{
    return adafactor_square(&w->s, w->x->grad[i] * w->scale);
}

/* Updates R of rows [begin, end); the partial sums add up to the sum of R. */
static void update_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    pass *const w = arg;
    const int64_t cols = w->x->cols;
    double all = 0.0;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        double sum = 0.0;
        for (int64_t i = r * cols; i < (r + 1) * cols; i++)
            sum += (double)square(w, i);
        w->row[r] = adafactor_moment(&w->s, (float)(sum / (double)cols), w->row[r]);
        all += (double)w->row[r];
    }
    w->partial[begin / w->run] = all;
}

/* Updates C of columns [begin, end) over all rows. */
static void update_cols(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    pass *const w = arg;
    const int64_t rows = w->x->rows, cols = w->x->cols;
    (void)worker;
    for (int64_t at = begin; at < end; at += COLS_AT_ONCE) {
        const int64_t n = at + COLS_AT_ONCE < end ? COLS_AT_ONCE : end - at;
        double sum[COLS_AT_ONCE] = {0.0};
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = 0; k < n; k++)
                sum[k] += (double)square(w, r * cols + at + k);
        for (int64_t k = 0; k < n; k++)
            w->col[at + k] =
                adafactor_moment(&w->s, (float)(sum[k] / (double)rows), w->col[at + k]);
    }
}

static void update_vector(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    pass *const w = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        w->v[i] = adafactor_moment(&w->s, square(w, i), w->v[i]);
}

/* u of element i before clipping and rate; r: factor of its row. */
static float direction(const pass *w, int64_t i, float r)
{
    return adafactor_direction(r, w->col != NULL ? w->col[i % w->x->cols] : w->v[i],
                               w->x->grad[i] * w->scale);
}

static float row_factor(const pass *w, int64_t i)
{
    return w->col != NULL ? adafactor_row_factor(w->row[i / w->x->cols], w->t.inverse_mean) : 1.0f;
}

static void square_updates(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    pass *const w = arg;
    double sum = 0.0;
    float r = row_factor(w, begin);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        if (w->col != NULL && i % w->x->cols == 0)
            r = row_factor(w, i);
        const double u = (double)direction(w, i, r);
        sum += u * u;
    }
    w->partial[begin / w->run] = sum;
}

static void apply(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    pass *const w = arg;
    float *const p = w->x->param;
    float r = row_factor(w, begin);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        if (w->col != NULL && i % w->x->cols == 0)
            r = row_factor(w, i);
        p[i] =
            adafactor_move(&w->s, &w->t, direction(w, i, r), p[i], w->m != NULL ? w->m + i : NULL);
    }
    lathe_shadow_refresh(w->x, begin, end);
}

/* ---- a step ---- */

/* rho of step t. */
static double relative_rate(const adafactor *o, int64_t t)
{
    const double least = o->warmup_init ? 1e-6 * (double)t : 1e-2, root = 1.0 / sqrt((double)t);
    return o->relative_step ? least < root ? least : root : 1.0;
}

static adafactor_step step_of(const adafactor *o, int64_t t)
{
    const double b = 1.0 - pow((double)t, o->decay_rate);
    const adafactor_step s = {.rate = relative_rate(o, t),
                              .eps2 = o->eps2,
                              .clip = o->clip,
                              .weight_decay = o->weight_decay,
                              .old = (float)b,
                              .fresh = (float)(1.0 - b),
                              .eps1 = (float)o->eps1,
                              .beta1 = (float)o->beta1,
                              .new1 = (float)(1.0 - o->beta1),
                              .has_beta1 = o->has_beta1,
                              .scales_by_parameter = o->scales_by_parameter};
    return s;
}

static lathe_status update(void *ctx, const lathe_optimizer_step *s,
                           const lathe_optimizer_tensor *x)
{
    const adafactor *const o = ctx;
    pass w = {.host = o->common.host, .x = x, .s = step_of(o, s->step), .t.size = 1.0};
    const int is_matrix = adafactor_is_matrix(&w.s, x);
    const double lr = (double)s->scalars[LATHE_SCALAR_LR] * x->lr_mult * w.s.rate;
    const int64_t run = adafactor_run(x->n, LATHE_CHUNK_ELEMENTS);
    w.row = is_matrix ? x->slots[SLOT_ROW] : NULL;
    w.col = is_matrix ? x->slots[SLOT_COL] : NULL;
    w.v = is_matrix ? NULL : x->slots[SLOT_V];
    w.m = o->has_beta1 ? x->slots[is_matrix ? 2 : 1] : NULL;
    w.scale = s->scalars[LATHE_SCALAR_GRAD_SCALE];
    if (o->scales_by_parameter) {
        spread(&w, x->n, run, square_params);
        w.t.size = adafactor_size(&w.s, sum_of(&w, x->n), x->n);
    }
    if (is_matrix) {
        spread(&w, x->rows, adafactor_row_run(x), update_rows);
        w.t.inverse_mean = (float)((double)x->rows / sum_of(&w, x->rows));
        spread(&w, x->cols, adafactor_run(x->cols, COLS_AT_ONCE), update_cols);
    } else {
        spread(&w, x->n, run, update_vector);
    }
    spread(&w, x->n, run, square_updates);
    adafactor_tensor_rates(&w.s, lr, x->weight_decay_mult, sum_of(&w, x->n), x->n, &w.t);
    spread(&w, x->n, run, apply);
    return LATHE_OK;
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    const int32_t n_slots = 1 + ((const adafactor *)self)->has_beta1;
    return lathe_tensors_run(lathe_optimizer_host(self), s, n_slots, update, self);
}

/* |partial sums, one per chunk|values that are the same for all elements of a tensor| */
static void room(void *self, const lathe_param_info *param, lathe_optimizer_room *out)
{
    const lathe_optimizer_tensor x = {.n = lathe_desc_count(&param->desc)};
    (void)self;
    out->own = lathe_queue_chunks(&x) * (int64_t)sizeof(double) + (int64_t)sizeof(adafactor_tensor);
}

static lathe_status queue(void *self, const lathe_optimizer_queue *todo)
{
    const adafactor *const o = self;
    double *const partial = todo->own;
    const adafactor_args a = {*todo->args, step_of(o, todo->step->step), partial,
                              (adafactor_tensor *)(void *)(partial + todo->args->n_chunks)};
    const int64_t bytes = (int64_t)sizeof a, n_tensors = todo->args->n_tensors;
    if (o->scales_by_parameter)
        LATHE_TRY(lathe_queue_launch(todo, "adafactor_sizes", &a, bytes));
    LATHE_TRY(lathe_queue_launch(todo, "adafactor_rows", &a, bytes));
    LATHE_TRY(lathe_queue_launch(todo, "adafactor_cols", &a, bytes));
    LATHE_TRY(todo->launch(todo->ctx, "adafactor_means", n_tensors, &a, bytes));
    LATHE_TRY(lathe_queue_launch(todo, "adafactor_updates", &a, bytes));
    LATHE_TRY(todo->launch(todo->ctx, "adafactor_rates", n_tensors, &a, bytes));
    return lathe_queue_launch(todo, LATHE_ELEMENTWISE_KERNEL, &a, bytes);
}

LATHE_INSTANCE(adafactor, read_values)

LATHE_OPTIMIZER_TABLE(adafactor, .slots = slots, .partition = partition, .step = step,
                      .cuda_image = LATHE_CUDA_IMAGE, .queue = queue, .room = room);

LATHE_OPTIMIZER_ENTRY(adafactor, .version = "1.0.0",
                      .summary = "second moments of rows and columns: almost no state",
                      .source = "arXiv:1804.04235; transformers Adafactor");

/* GaLore: AdamW whose moments live in the few directions that the gradient spans most.
 *
 *     every gap steps  P = the `rank` leading singular vectors of G along its shorter side
 *     R = P G;  m = b1*m + (1-b1)*R;  v = b2*v + (1-b2)*R*R;  N = m/(sqrt(v) + eps)
 *     p -= lr*sqrt(1 - b2^t)/(1 - b1^t) * scale * P^T N;  p -= lr*wd*p
 *
 * Matrices of layers are projected when their shorter side is longer than the rank; everything else
 * (embeddings, head, norms, biases) takes the same rule unprojected. A vector's sign is fixed by its
 * largest element, which the source leaves to its library.
 * Source: arXiv:2403.03507; galore-torch GaLoreAdamW, projection "std".
 */
#include "eigen.h"
#include "lathe/low_rank.h"
#include "lathe/optimizer_kit.h"

typedef struct galore {
    lathe_optimizer_common common;
    double beta1, beta2, eps, weight_decay, scale;
    int64_t rank, gap;
} galore;

enum { SLOT_M, SLOT_V, SLOT_PROJECTOR };
enum {
    FIELD_LR,
    FIELD_BETA1,
    FIELD_BETA2,
    FIELD_EPS,
    FIELD_WEIGHT_DECAY,
    FIELD_RANK,
    FIELD_GAP,
    FIELD_SCALE
};

static const lathe_field fields[] = {
    LATHE_LR_FIELD("1e-3"),
    LATHE_BETA_FIELD("beta1", "0.9", "decay of the first moment"),
    LATHE_BETA_FIELD("beta2", "0.999", "decay of the second moment"),
    LATHE_EPS_FIELD("1e-6"),
    LATHE_WEIGHT_DECAY_FIELD("0.0"),
    LATHE_FIELD_INT("rank", "128", 1, LATHE_MAX_PROJECTION, "directions",
                    "directions that are kept"),
    LATHE_FIELD_INT("update_proj_gap", "200", 1, 1e9, "steps",
                    "steps from one singular value decomposition to the next"),
    LATHE_FIELD_FLOAT("scale", "0.25", 0, 1e6, "1", "factor on a projected update"),
};

static lathe_status read_values(const lathe_host *host, galore *o, const lathe_value *values)
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
    return LATHE_OK;
}

/* The geometry of a projected parameter; rank 0: it is not projected. */
static lathe_low_rank geometry(const galore *o, int32_t role, int64_t rows, int64_t cols)
{
    lathe_low_rank r = {.rows = rows, .cols = cols, .by_columns = rows < cols};
    const int64_t shorter = rows < cols ? rows : cols;
    if ((role == LATHE_ROLE_MATRIX || role == LATHE_ROLE_ADAPTER) && shorter > o->rank)
        r.rank = o->rank;
    return r;
}

static lathe_low_rank geometry_of(const galore *o, const lathe_param_info *param)
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
    out[SLOT_PROJECTOR].name = "projector";
    out[SLOT_PROJECTOR].desc = lathe_desc_2d(LATHE_F32, r.rank, lathe_low_rank_length(&r));
    return 3;
}

/* The Gram matrix along the shorter side, and what its eigenvectors need. */
static int64_t scratch(void *self, const lathe_param_info *param)
{
    const lathe_low_rank r = geometry_of(self, param);
    const int64_t n = lathe_low_rank_length(&r);
    return r.rank > 0 ? n * n * (int64_t)sizeof(double) + galore_eigen_scratch(n) : 0;
}

static void scalars(void *self, int64_t step, double *out)
{
    const galore *const o = self;
    out[0] = sqrt(lathe_bias_correction(o->beta2, step)) / lathe_bias_correction(o->beta1, step);
}

/* ---- the projector ---- */

typedef struct gram {
    const lathe_low_rank *r;
    const float *g;
    double *out; /* [length, length] */
} gram;

/* Rows of the Gram matrix: sums over the lines, in order, of products in double. */
static void gram_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const gram *const w = arg;
    const int64_t n = lathe_low_rank_length(w->r), lines = lathe_low_rank_lines(w->r);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        double *const row = w->out + i * n;
        memset(row, 0, (size_t)n * sizeof *row);
        if (w->r->by_columns) { /* the lines are contiguous behind each other in a row of G */
            for (int64_t j = 0; j < n; j++) {
                const float *const x = w->g + i * lines, *const y = w->g + j * lines;
                double sum[8] = {0.0}, all = 0.0;
                for (int64_t l = 0; l < lines; l++)
                    sum[l % 8] += (double)x[l] * (double)y[l];
                for (int k = 0; k < 8; k++)
                    all += sum[k];
                row[j] = all;
            }
            continue;
        }
        for (int64_t l = 0; l < lines; l++) {
            const float *const line = w->g + l * n;
            const double x = (double)line[i];
            for (int64_t j = 0; j < n; j++)
                row[j] += x * (double)line[j];
        }
    }
}

static lathe_status renew(const galore *o, const lathe_optimizer_step *s,
                          const lathe_optimizer_tensor *x, const lathe_low_rank *r)
{
    const lathe_host *const host = o->common.host;
    const int64_t n = lathe_low_rank_length(r), square = n * n * (int64_t)sizeof(double);
    gram w = {r, x->grad, s->scratch};
    if (s->scratch == NULL || s->scratch_bytes < square + galore_eigen_scratch(n))
        return lathe_fail(
            host, LATHE_E_ARG, "tensor %d needs %lld bytes of scratch, the step has %lld",
            x->tensor, (long long)(square + galore_eigen_scratch(n)), (long long)s->scratch_bytes);
    host->parallel_for(n, 8, gram_rows, &w);
    return galore_eigen(host, w.out, n, r->rank, x->slots[SLOT_PROJECTOR],
                        (char *)s->scratch + square);
}

/* ---- the update ---- */

typedef struct update {
    const lathe_optimizer_tensor *x;
    lathe_low_rank r;
    lathe_adam_numbers adam;
    float scale; /* on the gradient */
    float factor, decay;
} update;

static update update_of(const galore *o, const lathe_optimizer_step *s,
                        const lathe_optimizer_tensor *x)
{
    const double lr = (double)s->scalars[LATHE_SCALAR_LR] * x->lr_mult;
    return (update){.x = x,
                    .adam = lathe_adam_numbers_of(o->beta1, o->beta2, o->eps),
                    .scale = s->scalars[LATHE_SCALAR_GRAD_SCALE],
                    .factor = (float)(-lr * (double)s->scalars[LATHE_SCALAR_USER]),
                    .decay = (float)(lr * o->weight_decay * x->weight_decay_mult)};
}

static void update_lines(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const update *const w = arg;
    const int64_t lines = lathe_low_rank_lines(&w->r);
    float *const m = w->x->slots[SLOT_M], *const v = w->x->slots[SLOT_V];
    float r[LATHE_MAX_PROJECTION][LATHE_LINES];
    (void)worker;
    for (int64_t at = begin; at < end; at += LATHE_LINES) {
        const int64_t n = end - at < LATHE_LINES ? end - at : LATHE_LINES;
        lathe_low_rank_project(&w->r, w->x->grad, w->scale, at, n, r[0]);
        for (int64_t k = 0; k < w->r.rank; k++)
            lathe_adam_direction(&w->adam, r[k], m + k * lines + at, v + k * lines + at, r[k], n);
        lathe_low_rank_add(&w->r, r[0], at, n, w->factor, w->decay, w->x->param);
    }
}

static void update_elements(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const update *const w = arg;
    (void)worker;
    lathe_adam_elements(&w->adam, w->x, w->scale, w->factor, w->decay, begin, end);
}

static void refresh(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    lathe_shadow_refresh(((const update *)arg)->x, begin, end);
}

static lathe_status update_tensor(const galore *o, const lathe_optimizer_step *s,
                                  const lathe_optimizer_tensor *x)
{
    const lathe_host *const host = o->common.host;
    update w = update_of(o, s, x);
    if (x->slots[SLOT_PROJECTOR] == NULL) {
        host->parallel_for(x->n, LATHE_CHUNK_ELEMENTS, update_elements, &w);
        return LATHE_OK;
    }
    w.r = geometry(o, LATHE_ROLE_MATRIX, x->rows, x->cols);
    w.r.projector = x->slots[SLOT_PROJECTOR];
    w.factor *= (float)o->scale;
    if ((s->step - 1) % o->gap == 0)
        LATHE_TRY(renew(o, s, x, &w.r));
    host->parallel_for(lathe_low_rank_lines(&w.r), LATHE_LINES, update_lines, &w);
    host->parallel_for(x->n, LATHE_CHUNK_ELEMENTS, refresh, &w);
    return LATHE_OK;
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    const galore *const o = self;
    for (int32_t t = 0; t < s->n_tensors; t++) {
        LATHE_TRY(lathe_tensor_check(o->common.host, s, t, 2));
        if (s->tensors[t].n > 0)
            LATHE_TRY(update_tensor(o, s, &s->tensors[t]));
    }
    return LATHE_OK;
}

LATHE_INSTANCE(galore, read_values)

static const lathe_optimizer_v1 galore_table = {
    .size = (uint32_t)sizeof galore_table,
    .revision = LATHE_OPTIMIZER_REVISION,
    .slots = slots,
    .partition = partition,
    .base_lr = lathe_optimizer_lr,
    .scalars = scalars,
    .step = step,
    .scratch = scratch,
};

LATHE_OPTIMIZER_ENTRY(galore, .version = "1.0.0",
                      .summary = "AdamW in the leading singular directions of the gradient",
                      .source = "arXiv:2403.03507; galore-torch");

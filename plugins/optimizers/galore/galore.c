/* GaLore: AdamW with moments only for the few directions in which the gradient is largest.
 *
 *     every gap steps  P = the `rank` leading singular vectors of G along its shorter side
 *     R = P G;  m = b1*m + (1-b1)*R;  v = b2*v + (1-b2)*R*R;  N = m/(sqrt(v) + eps)
 *     p -= lr*sqrt(1 - b2^t)/(1 - b1^t) * scale * P^T N;  p -= lr*wd*p
 *
 * Matrices of layers are projected if their shorter side is longer than the rank; all other tensors
 * (embeddings, head, norms, biases) use the same rule without projection. The sign of a singular
 * vector is fixed by its largest element; in the source it depends on the linear algebra library.
 * Source: arXiv:2403.03507; galore-torch GaLoreAdamW, projection "std".
 */
#include "galore.h"

typedef lathe_low_rank_adam galore;

static const lathe_field fields[] = {
    LATHE_LOW_RANK_FIELDS("128", "directions that are kept",
                          "steps from one singular value decomposition to the next", "0.25",
                          "factor on a projected update"),
};

static lathe_status read_values(const lathe_host *host, galore *o, const lathe_value *values)
{
    if (!LATHE_HAS(host, eigenvectors))
        return lathe_fail(host, LATHE_E_UNSUPPORTED, "this Lathe has no eigenvectors");
    lathe_low_rank_adam_read(o, values);
    return LATHE_OK;
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    const lathe_low_rank r = lathe_low_rank_param(((const galore *)self)->rank, param);
    const int32_t n = lathe_low_rank_moments(&r, param, out);
    if (r.rank == 0)
        return n;
    out[SLOT_PROJECTOR].name = "projector";
    out[SLOT_PROJECTOR].desc = lathe_desc_2d(LATHE_F32, r.rank, lathe_low_rank_length(&r));
    return n + 1;
}

/* Scratch: the Gram matrix along the shorter side, and the scratch of its eigenvectors. */
static int64_t scratch_of(const lathe_low_rank *r)
{
    const int64_t n = lathe_low_rank_length(r);
    return n * n * (int64_t)sizeof(double) + lathe_eigenvectors_scratch(n);
}

static int64_t scratch(void *self, const lathe_param_info *param)
{
    const lathe_low_rank r = lathe_low_rank_param(((const galore *)self)->rank, param);
    return r.rank > 0 ? scratch_of(&r) : 0;
}

/* ---- the projector ---- */

typedef struct gram {
    const lathe_low_rank *r;
    const float *g;
    double *out; /* [length, length] */
} gram;

/* Computes rows of the Gram matrix: sums over the lines, in order, of products in double. */
static void gram_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const gram *const w = arg;
    const int64_t n = lathe_low_rank_length(w->r), lines = lathe_low_rank_lines(w->r);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        double *const row = w->out + i * n;
        memset(row, 0, (size_t)n * sizeof *row);
        /* lines are columns of G: neighbouring lines are contiguous in a row */
        if (w->r->by_columns) {
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

static lathe_status renew(const lathe_host *host, const lathe_optimizer_step *s,
                          const lathe_optimizer_tensor *x, const lathe_low_rank *r)
{
    const int64_t n = lathe_low_rank_length(r);
    gram w = {r, x->grad, s->scratch};
    LATHE_TRY(lathe_scratch_check(host, s, x, scratch_of(r)));
    host->parallel_for(n, 8, gram_rows, &w);
    return host->eigenvectors(w.out, n, r->rank, x->slots[SLOT_PROJECTOR], w.out + n * n);
}

/* ---- the update ---- */

static void update_lines(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const lathe_low_rank_update *const w = arg;
    float r[LATHE_MAX_PROJECTION][LATHE_LINES];
    (void)worker;
    for (int64_t at = begin; at < end; at += LATHE_LINES) {
        const int64_t n = end - at < LATHE_LINES ? end - at : LATHE_LINES;
        lathe_low_rank_project(&w->r, w->x->grad, w->scale, at, n, r[0]);
        lathe_low_rank_direction(w, at, n, r[0]);
        lathe_low_rank_add(&w->r, r[0], at, n, w->factor, w->decay, w->x->param);
    }
}

static void refresh(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    lathe_shadow_refresh(((const lathe_low_rank_update *)arg)->x, begin, end);
}

static lathe_status update_tensor(void *ctx, const lathe_optimizer_step *s,
                                  const lathe_optimizer_tensor *x)
{
    const galore *const o = ctx;
    const lathe_host *const host = lathe_optimizer_host(o);
    lathe_low_rank_update w = lathe_low_rank_update_of(o, s, x);
    if (x->slots[SLOT_PROJECTOR] == NULL) {
        lathe_low_rank_plain(host, &w);
        return LATHE_OK;
    }
    w.r.projector = x->slots[SLOT_PROJECTOR];
    w.factor *= (float)o->scale;
    if ((s->step - 1) % o->gap == 0)
        LATHE_TRY(renew(host, s, x, &w.r));
    host->parallel_for(lathe_low_rank_lines(&w.r), LATHE_LINES, update_lines, &w);
    host->parallel_for(x->n, LATHE_CHUNK_ELEMENTS, refresh, &w);
    return LATHE_OK;
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    return lathe_tensors_run(lathe_optimizer_host(self), s, 2, update_tensor, self);
}

/* ---- on a device whose memory the host cannot access ---- */

/* Parts of the memory:
 *   device |Gram matrix, then directions of a step|
 *   host   |Gram matrix and workspace of its eigenvectors|projector| */
static void room(void *self, const lathe_param_info *param, lathe_optimizer_room *out)
{
    const lathe_low_rank r = lathe_low_rank_param(((const galore *)self)->rank, param);
    const int64_t n = lathe_low_rank_length(&r), square = n * n * (int64_t)sizeof(double);
    const int64_t u = r.rank * lathe_low_rank_lines(&r) * (int64_t)sizeof(float);
    if (r.rank == 0)
        return;
    out->shared = square > u ? square : u;
    out->host = scratch_of(&r) + r.rank * n * (int64_t)sizeof(float);
}

/* Makes a new projector: copies the Gram matrix to the host and its eigenvectors back. Waits. */
static lathe_status queue_renew(const lathe_host *host, const lathe_optimizer_queue *todo,
                                const galore_args *a, float *projector)
{
    const int64_t n = a->low.length, bytes = n * n * (int64_t)sizeof(double);
    double *const matrix = todo->host;
    char *const rest = (char *)todo->host + bytes;
    float *const out = (float *)(void *)(rest + lathe_eigenvectors_scratch(n));
    LATHE_TRY(todo->launch(todo->ctx, "galore_gram", galore_gram_tiles(n), a, (int64_t)sizeof *a));
    LATHE_TRY(todo->copy(todo->ctx, matrix, a->gram, bytes, LATHE_COPY_TO_HOST));
    LATHE_TRY(todo->wait(todo->ctx));
    LATHE_TRY(host->eigenvectors(matrix, n, a->low.rank, out, rest));
    return todo->copy(todo->ctx, projector, out, a->low.rank * n * (int64_t)sizeof *out,
                      LATHE_COPY_TO_DEVICE);
}

static lathe_status queue(void *self, const lathe_optimizer_queue *todo)
{
    const galore *const o = self;
    galore_args a = {.gram = todo->shared, .scale = (float)o->scale};
    LATHE_TRY(lathe_low_rank_queue_plain(o, todo, SLOT_PROJECTOR, &a.low));
    a.low.u = todo->shared;
    for (int32_t t = 0; t < todo->step->n_tensors; t++) {
        const lathe_optimizer_tensor *const x = todo->step->tensors + t;
        if (!lathe_low_rank_queue_tensor(o, todo, t, &a.low))
            continue;
        a.low.projector = x->slots[SLOT_PROJECTOR];
        if ((todo->step->step - 1) % o->gap == 0)
            LATHE_TRY(queue_renew(lathe_optimizer_host(o), todo, &a, x->slots[SLOT_PROJECTOR]));
        LATHE_TRY(lathe_low_rank_queue_project(todo, &a.low));
        LATHE_TRY(
            todo->launch(todo->ctx, "galore_apply", lathe_queue_chunks(x), &a, (int64_t)sizeof a));
    }
    return LATHE_OK;
}

LATHE_INSTANCE(galore, read_values)

LATHE_OPTIMIZER_TABLE(galore, .slots = slots, .partition = lathe_low_rank_partition,
                      .scalars = lathe_low_rank_scalars, .step = step,
                      .cuda_image = LATHE_CUDA_IMAGE, .scratch = scratch, .queue = queue,
                      .room = room);

LATHE_OPTIMIZER_ENTRY(galore, .version = "1.0.0",
                      .summary = "AdamW in the leading singular directions of the gradient",
                      .source = "arXiv:2403.03507; galore-torch");

/* Adam with moments in a low-rank projection (low_rank.h): common code of GaLore and APOLLO, with
 * the rule for tensors that are not projected.
 *
 *     m = b1*m + (1-b1)*R;  v = b2*v + (1-b2)*R*R;  u = m/(sqrt(v) + eps)
 *     a step of lr*sqrt(1 - b2^t)/(1 - b1^t) along u, then the decay
 *
 * in the order of transformers' AdamW. After the formulas, this file has the CPU's loops;
 * low_rank_queue.h has those of a GPU.
 */
#ifndef LATHE_OPTIMIZERS_LOW_RANK_ADAM_H
#define LATHE_OPTIMIZERS_LOW_RANK_ADAM_H

#include "lathe/kit/adamw_family.h"
#include "low_rank.h"

typedef struct lathe_adam_numbers {
    float beta1, new1, beta2, new2, eps;
} lathe_adam_numbers;

/** Updates m and v with g; returns u. */
LATHE_HD static inline float lathe_adam_element(const lathe_adam_numbers *a, float g, float *m,
                                                float *v)
{
    *m = fmaf(a->new1, g, a->beta1 * *m);
    *v = fmaf(a->new2 * g, g, a->beta2 * *v);
    return *m / (sqrtf(*v) + a->eps);
}

/** p += factor*u; p -= decay*p: the two factors for a tensor, without an optimizer's own factor. */
LATHE_HD static inline void lathe_low_rank_rates(const float *scalars, double lr_mult,
                                                 double weight_decay, double decay_mult,
                                                 float *out_factor, float *out_decay)
{
    const double lr = (double)scalars[LATHE_SCALAR_LR] * lr_mult;
    *out_factor = (float)(-lr * (double)scalars[LATHE_SCALAR_USER]);
    *out_decay = (float)(lr * weight_decay * decay_mult);
}

#ifndef __CUDACC__

/** First member of an optimizer's instance. */
typedef struct lathe_low_rank_adam {
    lathe_adamw adamw;
    double scale;
    int64_t rank, gap; /* number of directions; steps that use one projector */
} lathe_low_rank_adam;

/* The first eight rows of the schema, and the number of the next row. */
#define LATHE_LOW_RANK_FIELDS(rank, rank_doc, gap_doc, scale, scale_doc)                           \
    LATHE_ADAMW_FIELDS("1e-3", "1e-6", "0.0"),                                                     \
        LATHE_FIELD_INT("rank", rank, 1, LATHE_MAX_PROJECTION, "directions", rank_doc),            \
        LATHE_FIELD_INT("update_proj_gap", "200", 1, 1e9, "steps", gap_doc),                       \
        LATHE_FIELD_FLOAT("scale", scale, 0, 1e9, "1", scale_doc)
enum { LATHE_LOW_RANK_N_FIELDS = LATHE_ADAMW_N_FIELDS + 3 };

static inline void lathe_low_rank_adam_read(lathe_low_rank_adam *out, const lathe_value *values)
{
    lathe_adamw_read(&out->adamw, values);
    out->rank = values[LATHE_ADAMW_N_FIELDS].i;
    out->gap = values[LATHE_ADAMW_N_FIELDS + 1].i;
    out->scale = values[LATHE_ADAMW_N_FIELDS + 2].f;
}

/** partition() of an optimizer whose instance begins with lathe_low_rank_adam. */
static inline int32_t lathe_low_rank_partition(void *self, const lathe_param_info *param)
{
    return lathe_low_rank_param(((const lathe_low_rank_adam *)self)->rank, param).rank > 0
               ? LATHE_PARTITION_TENSOR
               : LATHE_PARTITION_ELEMENT;
}

/** scalars() of such an optimizer: sqrt(1 - b2^t)/(1 - b1^t). */
static inline void lathe_low_rank_scalars(void *self, int64_t step, double *out)
{
    const lathe_adamw *const o = (const lathe_adamw *)self;
    out[0] = sqrt(lathe_bias_correction(o->beta2, step)) / lathe_bias_correction(o->beta1, step);
}

static inline lathe_adam_numbers lathe_adam_numbers_of(double beta1, double beta2, double eps)
{
    const lathe_adam_numbers a = {(float)beta1, (float)(1.0 - beta1), (float)beta2,
                                  (float)(1.0 - beta2), (float)eps};
    return a;
}

/** Updates n elements of m and v with g and writes u. */
LATHE_CLONES static inline void lathe_adam_direction(const lathe_adam_numbers *a, const float *g,
                                                     float *m, float *v, float *u, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        u[i] = lathe_adam_element(a, g[i], &m[i], &v[i]);
}

/** The update of one tensor in a step. */
typedef struct lathe_low_rank_update {
    const lathe_optimizer_tensor *x; /* slots[0] is m, slots[1] v */
    lathe_low_rank r;
    lathe_adam_numbers adam;
    float scale;         /* factor on the gradient */
    float factor, decay; /* p += factor*u; p -= decay*p */
    int32_t reserved;    /* 0 */
} lathe_low_rank_update;

static inline lathe_low_rank_update lathe_low_rank_update_of(const lathe_low_rank_adam *o,
                                                             const lathe_optimizer_step *s,
                                                             const lathe_optimizer_tensor *x)
{
    lathe_low_rank_update u;
    u.x = x;
    u.r = lathe_low_rank_of(o->rank, LATHE_ROLE_MATRIX, x->rows, x->cols);
    u.adam = lathe_adam_numbers_of(o->adamw.beta1, o->adamw.beta2, o->adamw.eps);
    u.scale = s->scalars[LATHE_SCALAR_GRAD_SCALE];
    lathe_low_rank_rates(s->scalars, x->lr_mult, o->adamw.weight_decay, x->weight_decay_mult,
                         &u.factor, &u.decay);
    u.reserved = 0;
    return u;
}

/** r[rank][LATHE_LINES] is R of lines [line, line + n); updates their moments and writes u to r. */
static inline void lathe_low_rank_direction(const lathe_low_rank_update *u, int64_t line, int64_t n,
                                            float *r)
{
    const int64_t lines = lathe_low_rank_lines(&u->r);
    for (int64_t k = 0; k < u->r.rank; k++)
        lathe_adam_direction(&u->adam, r + k * LATHE_LINES,
                             (float *)u->x->slots[0] + k * lines + line,
                             (float *)u->x->slots[1] + k * lines + line, r + k * LATHE_LINES, n);
}

static inline void lathe__low_rank_elements(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const lathe_low_rank_update *const w = (const lathe_low_rank_update *)arg;
    const lathe_optimizer_tensor *const x = w->x;
    float *const m = (float *)x->slots[0], *const v = (float *)x->slots[1];
    float g[LATHE__LINE_TILE], u[LATHE__LINE_TILE];
    (void)worker;
    for (int64_t at = begin; at < end; at += LATHE__LINE_TILE) {
        const int64_t n = end - at < LATHE__LINE_TILE ? end - at : LATHE__LINE_TILE;
        for (int64_t i = 0; i < n; i++)
            g[i] = x->grad[at + i] * w->scale;
        lathe_adam_direction(&w->adam, g, m + at, v + at, u, n);
        for (int64_t i = 0; i < n; i++)
            x->param[at + i] = lathe_low_rank_move(x->param[at + i], u[i], w->factor, w->decay);
    }
    lathe_shadow_refresh(x, begin, end);
}

/** Updates a tensor that is not projected, and refreshes its compute copy. */
static inline void lathe_low_rank_plain(const lathe_host *host, lathe_low_rank_update *u)
{
    host->parallel_for(u->x->n, LATHE_CHUNK_ELEMENTS, lathe__low_rank_elements, u);
}

#endif

#endif

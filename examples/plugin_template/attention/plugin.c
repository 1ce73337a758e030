/* @NAME@: attention by its definition, f32 on the CPU; what it refuses, another backend takes.
 *
 *     s_ij = scale * q_i . k_j;  p = softmax over the visible j;  o_i = sum_j p_ij v_j
 *     ds = p * (dO v^T - sum(dO * o)) * scale;  dq = ds k;  dk = ds^T q;  dv = p^T dO
 *
 * Layouts, masks and what is saved for the backward: lathe/attention.h. A work item is one key head of
 * one batch row, so that dk and dv are added up in one order whatever the number of threads.
 */
#include <lathe/attention.h>
#include <lathe/plugin.h>
#include <math.h>

typedef struct instance {
    const lathe_host *host;
} instance;

typedef struct job {
    const lathe_attention_problem *p;
    const lathe_attention_args *a;
} job;

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    (void)values, (void)n_values;
    instance *const self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of @NAME@");
    self->host = host;
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((instance *)self)->host->free(self);
}

/* The highest score wins the problem. Raise it to the band of plugin.h that your kernel deserves. */
static int32_t score(void *self, const lathe_attention_problem *p, char *why, int64_t why_bytes)
{
    const char *no = NULL;
    (void)self;
    if (p->dtype != LATHE_F32)
        no = "f32 only";
    else if (p->packed || p->cached || p->softcap > 0.0f)
        no = "no packed documents, cache or soft-cap";
    else if (p->device != NULL && !p->device->host_memory)
        no = "CPU only";
    if (why != NULL && why_bytes > 0)
        (void)snprintf(why, (size_t)why_bytes, "%s", no != NULL ? no : "by the definition");
    return no != NULL ? LATHE_SCORE_NO : LATHE_SCORE_PORTABLE / 2;
}

static int64_t no_scratch(void *self, const lathe_attention_problem *p)
{
    (void)self, (void)p;
    return 0;
}

static float dot(const float *x, const float *y, int64_t n)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++)
        sum = fmaf(x[i], y[i], sum);
    return sum;
}

static void add_scaled(float *y, float by, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = fmaf(by, x[i], y[i]);
}

/* Query i sees the keys [*first, *end). */
static void visible(const lathe_attention_problem *p, int64_t i, int64_t *first, int64_t *end)
{
    const int64_t at = i + p->t_k - p->t_q;
    *end = p->causal && at + 1 < p->t_k ? at + 1 : p->t_k;
    *first = p->window > 0 && at - p->window + 1 > 0 ? at - p->window + 1 : 0;
}

/* Two passes over the keys: the largest score, then sums relative to it. */
static void forward_query(const job *x, int64_t b, int64_t h, int64_t i)
{
    const lathe_attention_problem *const p = x->p;
    const int64_t d = p->head_dim, kv = h / (p->n_heads / p->n_kv_heads);
    const float *const q = (const float *)x->a->q + (b * p->t_q + i) * p->q_stride + h * d;
    const float *const k = (const float *)x->a->k + b * p->t_k * p->k_stride + kv * d;
    const float *const v = (const float *)x->a->v + b * p->t_k * p->v_stride + kv * d;
    float *const o = (float *)x->a->o + (b * p->t_q + i) * p->o_stride + h * d;
    float most = -INFINITY, sum = 0.0f;
    int64_t first, end;
    visible(p, i, &first, &end);
    for (int64_t j = first; j < end; j++)
        most = fmaxf(most, p->scale * dot(q, k + j * p->k_stride, d));
    for (int64_t c = 0; c < d; c++)
        o[c] = 0.0f;
    for (int64_t j = first; j < end; j++) {
        const float e = expf(p->scale * dot(q, k + j * p->k_stride, d) - most);
        sum += e;
        add_scaled(o, e, v + j * p->v_stride, d);
    }
    for (int64_t c = 0; c < d && sum > 0.0f; c++)
        o[c] /= sum;
    x->a->lse[(b * p->n_heads + h) * p->t_q + i] = sum > 0.0f ? most + logf(sum) : -INFINITY;
}

static void backward_query(const job *x, int64_t b, int64_t h, int64_t i)
{
    const lathe_attention_problem *const p = x->p;
    const lathe_attention_args *const a = x->a;
    const int64_t d = p->head_dim, kv = h / (p->n_heads / p->n_kv_heads);
    const int64_t row = b * p->t_q + i;
    const float *const q = (const float *)a->q + row * p->q_stride + h * d;
    const float *const d_o = (const float *)a->d_o + row * p->o_stride + h * d;
    const float delta = dot(d_o, (const float *)a->o + row * p->o_stride + h * d, d);
    const float lse = a->lse[(b * p->n_heads + h) * p->t_q + i];
    int64_t first, end;
    visible(p, i, &first, &end);
    for (int64_t j = first; j < end; j++) {
        const int64_t key = b * p->t_k + j;
        const float *const k = (const float *)a->k + key * p->k_stride + kv * d;
        const float *const v = (const float *)a->v + key * p->v_stride + kv * d;
        const float prob = expf(p->scale * dot(q, k, d) - lse);
        const float ds = prob * (dot(d_o, v, d) - delta) * p->scale;
        if (a->dq != NULL)
            add_scaled((float *)a->dq + row * p->dq_stride + h * d, ds, k, d);
        if (a->dk != NULL)
            add_scaled((float *)a->dk + key * p->dk_stride + kv * d, ds, q, d);
        if (a->dv != NULL)
            add_scaled((float *)a->dv + key * p->dv_stride + kv * d, prob, d_o, d);
    }
}

/* Rows of `width` that are to be overwritten start from zero; those accumulated into stay. */
static void begin_rows(void *out, uint32_t keep, int64_t rows, int64_t stride, int64_t offset,
                       int64_t width)
{
    for (int64_t t = 0; out != NULL && !keep && t < rows; t++)
        for (int64_t c = 0; c < width; c++)
            ((float *)out)[t * stride + offset + c] = 0.0f;
}

static void items(void *arg, int64_t begin, int64_t end, int backward)
{
    const job *const x = arg;
    const lathe_attention_problem *const p = x->p;
    const lathe_attention_args *const a = x->a;
    const int64_t d = p->head_dim, group = p->n_heads / p->n_kv_heads;
    for (int64_t item = begin; item < end; item++) {
        const int64_t b = item / p->n_kv_heads, kv = item % p->n_kv_heads, h = kv * group;
        if (backward) {
            begin_rows(a->dq, a->accumulate & 1u, p->t_q, p->dq_stride,
                       b * p->t_q * p->dq_stride + h * d, group * d);
            begin_rows(a->dk, a->accumulate & 2u, p->t_k, p->dk_stride,
                       b * p->t_k * p->dk_stride + kv * d, d);
            begin_rows(a->dv, a->accumulate & 4u, p->t_k, p->dv_stride,
                       b * p->t_k * p->dv_stride + kv * d, d);
        }
        for (int64_t k = h; k < h + group; k++)
            for (int64_t i = 0; i < p->t_q; i++)
                (backward ? backward_query : forward_query)(x, b, k, i);
    }
}

static void forward_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    items(arg, begin, end, 0);
}

static void backward_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    items(arg, begin, end, 1);
}

static lathe_status forward(void *self, const lathe_attention_problem *p,
                            const lathe_attention_args *a)
{
    job x = {p, a};
    ((const instance *)self)->host->parallel_for(p->batch * p->n_kv_heads, 1, forward_items, &x);
    return LATHE_OK;
}

static lathe_status backward(void *self, const lathe_attention_problem *p,
                             const lathe_attention_args *a)
{
    job x = {p, a};
    ((const instance *)self)->host->parallel_for(p->batch * p->n_kv_heads, 1, backward_items, &x);
    return LATHE_OK;
}

static const lathe_attention_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_ATTENTION_REVISION,
    .score = score,
    .forward_scratch = no_scratch,
    .backward_scratch = no_scratch,
    .forward = forward,
    .backward = backward,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_ATTENTION,
    .revision = LATHE_ATTENTION_REVISION,
    .name = "@NAME@",
    .version = "0.1.0",
    .summary = "attention by its definition",
    .source = "arXiv:1706.03762, equation 1",
    .license = "Apache-2.0",
    .table = &table,
    .create = create,
    .destroy = destroy,
};

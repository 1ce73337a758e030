/* @NAME@: computes attention by its definition, in f32 on the CPU.
 *
 *     s_ij = scale * q_i . k_j;  p = softmax over the visible j;  o_i = sum_j p_ij v_j
 *     ds = p * (dO v^T - sum(dO * o)) * scale;  dq = ds k;  dk = ds^T q;  dv = p^T dO
 *
 * lathe/attention.h describes the layouts, the masks and what is saved for the backward. A work
 * item is one key head of one batch row, so that dk and dv are added up in the same order for any
 * number of threads. Another backend computes the problems that this one refuses.
 */
#include <lathe/kit/attention_kit.h>
#include <math.h>

/* For keys in [attention], add a schema named `fields`, LATHE_INSTANCE and LATHE_PLUGIN_FIELDS, as
 * in flash_cpu. */
typedef struct @NAME@ {
    const lathe_host *host;
} @NAME@;

typedef struct job {
    const lathe_attention_problem *p;
    const lathe_attention_args *a;
} job;

/* The backend with the highest score computes the problem. Raise the score to the band of plugin.h
 * that your kernel deserves. */
static int32_t @NAME@_score(void *self, const lathe_attention_problem *p, char *why,
                            int64_t why_bytes)
{
    const char *no = lathe_attention_host_refusal(p);
    (void)self;
    if (p->dtype != LATHE_F32)
        no = "f32 only";
    else if (p->packed || p->bounded || p->cached || p->alibi || p->sinks || p->softcap > 0.0f)
        no = "no packed documents, last keys, cache, slopes, sinks or soft-cap";
    return lathe_attention_scored(no, "by the definition", LATHE_SCORE_PORTABLE / 2, why,
                                  why_bytes);
}

static int64_t @NAME@_forward_scratch(void *self, const lathe_attention_problem *p)
{
    (void)self, (void)p;
    return 0;
}

static int64_t @NAME@_backward_scratch(void *self, const lathe_attention_problem *p)
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

static lathe_status @NAME@_forward(void *self, const lathe_attention_problem *p,
                                   const lathe_attention_args *a)
{
    const lathe_host *const host = lathe_attention_host(self);
    LATHE_TRY(lathe_attention_check(host, p, a, 0));
    job x = {p, a};
    host->parallel_for(p->batch * p->n_kv_heads, 1, forward_items, &x);
    return LATHE_OK;
}

static lathe_status @NAME@_backward(void *self, const lathe_attention_problem *p,
                                    const lathe_attention_args *a)
{
    const lathe_host *const host = lathe_attention_host(self);
    LATHE_TRY(lathe_attention_check_backward(host, p, a, 0));
    job x = {p, a};
    host->parallel_for(p->batch * p->n_kv_heads, 1, backward_items, &x);
    return LATHE_OK;
}

LATHE_INSTANCE_PLAIN(@NAME@)

LATHE_ATTENTION_ENTRY(@NAME@, .version = "0.1.0", .summary = "attention by its definition",
                      .source = "arXiv:1706.03762, equation 1");

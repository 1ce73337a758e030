/* Attention by the definition in lathe/attention.h, on host memory in f32, with one fault. */
#include "fault.h"

#include "lathe/attention.h"

enum { MOST_KEYS = 4096 };

static int64_t n_runs;
static float shared_scale;

static int32_t score(void *self, const lathe_attention_problem *p, char *why, int64_t why_bytes)
{
    instance *x = self;
    x->calls++;
    if (why_bytes > 0)
        (void)snprintf(why, IS(ignores_why_bytes) ? 64 : (size_t)why_bytes, "%s",
                       IS(gives_no_reason) ? "" : "f32 in host memory, by the definition");
    if (IS(score_too_high))
        return 5000;
    if (IS(takes_unknown_dtypes) && p->dtype != LATHE_BF16 && p->dtype != LATHE_F16)
        return LATHE_SCORE_PORTABLE;
    if (IS(takes_uneven_heads))
        return p->dtype == LATHE_F32 || p->dtype == LATHE_F64 ? LATHE_SCORE_PORTABLE : 0;
    if (p->dtype != LATHE_F32 || p->n_heads % p->n_kv_heads != 0 || !p->device->host_memory ||
        p->t_k > MOST_KEYS)
        return LATHE_SCORE_NO;
    return IS(score_changes) && x->calls % 2 == 0 ? LATHE_SCORE_VENDOR : LATHE_SCORE_PORTABLE;
}

static int64_t scratch(void *self, const lathe_attention_problem *p)
{
    (void)self;
    return IS(scratch_negative) ? -8 : IS(scratch_huge) ? (int64_t)1 << 60 : 8 * p->t_k + 64;
}

/* The keys that query i of row b sees. */
static void keys_of(const lathe_attention_problem *p, const lathe_attention_args *a, int64_t b,
                    int64_t i, int64_t *first, int64_t *last)
{
    const int64_t length = a->kv_len != NULL && !IS(ignores_kv_len) ? a->kv_len[b] : p->t_k;
    const int64_t at = IS(ignores_the_offset) ? i : i + length - p->t_q;
    *first = 0;
    *last = p->causal && !IS(ignores_causal) && at + 1 < length ? at + 1 : length;
    if (a->key_end != NULL && !IS(ignores_last_keys) && a->key_end[b * p->t_q + i] < *last)
        *last = a->key_end[b * p->t_q + i];
    if (IS(sees_one_key_less) && *last > 1)
        *last -= 1;
    if (p->window > 0 && !IS(ignores_window) && at - p->window + 1 > 0)
        *first = at - p->window + (IS(window_is_off_by_one) ? 0 : 1);
    if (a->doc_start != NULL && !IS(ignores_documents) && a->doc_start[b * p->t_q + i] > *first)
        *first = a->doc_start[b * p->t_q + i];
}

/* A query of one head. */
typedef struct query {
    const float *q, *d_o;
    int64_t at, first, last, b, kv;
} query;

static float capped(const lathe_attention_problem *p, float x)
{
    return p->softcap > 0.0f && !IS(ignores_softcap) ? p->softcap * tanhf(x / p->softcap) : x;
}

static float dot(const float *x, const float *y, int32_t n)
{
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return (float)sum;
}

static int32_t value_dim(const lathe_attention_problem *p)
{
    return p->value_dim > 0 ? p->value_dim : p->head_dim;
}

static query query_of(const lathe_attention_problem *p, const lathe_attention_args *a, int64_t n)
{
    const int64_t h = n % p->n_heads, i = n / p->n_heads % p->t_q, b = n / p->n_heads / p->t_q;
    query x = {.at = (b * p->t_q + i) * p->o_stride + h * value_dim(p),
               .b = b,
               .kv = IS(maps_heads_in_turn) ? h % p->n_kv_heads : h / (p->n_heads / p->n_kv_heads)};
    x.q = (const float *)a->q + (b * p->t_q + i) * p->q_stride + h * p->head_dim;
    x.d_o = a->d_o != NULL ? (const float *)a->d_o + x.at : NULL;
    keys_of(p, a, b, i, &x.first, &x.last);
    return x;
}

static int64_t key_at(const lathe_attention_problem *p, const query *x, int64_t j, int64_t stride)
{
    return (x->b * p->t_k + j) * stride + x->kv * p->head_dim;
}

static int64_t value_at(const lathe_attention_problem *p, const query *x, int64_t j, int64_t stride)
{
    const int32_t dim = value_dim(p);
    return (x->b * p->t_k + j) * stride +
           x->kv * (IS(takes_values_for_keys) && dim > p->head_dim ? p->head_dim : dim);
}

/* The bias that the slope of the query's head adds to the score of key j. */
static double bias(const lathe_attention_problem *p, const lathe_attention_args *a, int64_t n,
                   int64_t j)
{
    const int64_t i = n / p->n_heads % p->t_q, b = n / p->n_heads / p->t_q;
    const int64_t length = a->kv_len != NULL ? a->kv_len[b] : p->t_k;
    return a->slopes == NULL || IS(ignores_slopes)
               ? 0.0
               : (double)a->slopes[n % p->n_heads] * (double)(j - (i + length - p->t_q));
}

static int64_t lse_at(const lathe_attention_problem *p, int64_t n)
{
    const int64_t h = n % p->n_heads, i = n / p->n_heads % p->t_q, b = n / p->n_heads / p->t_q;
    return IS(lse_in_another_order) ? n : (b * p->n_heads + h) * p->t_q + i;
}

static void forward_one(const lathe_attention_problem *p, const lathe_attention_args *a, int64_t n)
{
    const query x = query_of(p, a, n);
    const float scale = IS(shares_its_scale) ? shared_scale : p->scale;
    const double sink =
        a->sinks == NULL || IS(ignores_sinks) ? -HUGE_VAL : (double)a->sinks[n % p->n_heads];
    double scores[MOST_KEYS], top = sink, sum = 0.0;
    float *o = (float *)a->o + x.at;
    for (int64_t j = x.first; j < x.last; j++) {
        const float *k = (const float *)a->k + key_at(p, &x, j, p->k_stride);
        scores[j] =
            (double)capped(p, (IS(ignores_scale) ? 1.0f : scale) * dot(x.q, k, p->head_dim)) +
            bias(p, a, n, j);
        top = fmax(top, scores[j]);
    }
    for (int64_t j = x.first; j < x.last; j++)
        sum += exp(scores[j] - top);
    sum += sink > -HUGE_VAL ? exp(sink - top) : 0.0;
    a->lse[lse_at(p, n)] = (float)(sum > 0.0 ? top + log(sum) : -HUGE_VAL);
    if (IS(lse_in_base_two))
        a->lse[lse_at(p, n)] *= 1.442695f;
    for (int32_t d = 0; d < value_dim(p); d++) {
        double total = 0.0;
        for (int64_t j = x.first; j < x.last; j++)
            total += exp(scores[j] - top) / sum *
                     (double)((const float *)a->v)[value_at(p, &x, j, p->v_stride) + d];
        o[d] = (float)total;
    }
    if (IS(nan_at_run_777) && n_runs % 1200 == 777)
        o[0] = NAN;
    if (IS(writes_its_inputs))
        ((float *)(uintptr_t)a->q)[0] = 0.0f;
}

/* Adds one query's part to dq, dk and dv. */
static void backward_one(const lathe_attention_problem *p, const lathe_attention_args *a, int64_t n)
{
    const query x = query_of(p, a, n);
    const float *o = (const float *)a->o + x.at;
    const double o_do = (double)dot(o, x.d_o, value_dim(p)), lse = (double)a->lse[lse_at(p, n)];
    float *dq = (float *)a->dq + (x.q - (const float *)a->q) / p->q_stride * p->dq_stride +
                (x.q - (const float *)a->q) % p->q_stride;
    for (int64_t j = x.first; j < x.last; j++) {
        const float *k = (const float *)a->k + key_at(p, &x, j, p->k_stride);
        const float *v = (const float *)a->v + value_at(p, &x, j, p->v_stride);
        float *dk = (float *)a->dk + key_at(p, &x, j, p->dk_stride);
        float *dv = (float *)a->dv + value_at(p, &x, j, p->dv_stride);
        const float s = p->scale * dot(x.q, k, p->head_dim), c = capped(p, s);
        const double t = p->softcap > 0.0f ? (double)c / (double)p->softcap : 0.0;
        const double w = exp((double)c + bias(p, a, n, j) - lse);
        double ds =
            w * ((double)dot(x.d_o, v, value_dim(p)) - (IS(forgets_the_row_sum) ? 0.0 : o_do));
        ds *= (double)p->scale * (IS(forgets_the_caps_slope) ? 1.0 : 1.0 - t * t);
        for (int32_t d = 0; d < value_dim(p); d++)
            dv[d] += (float)(w * (double)x.d_o[d]);
        for (int32_t d = 0; d < p->head_dim; d++) {
            dq[d] += (float)(ds * (double)k[d]);
            dk[d] += (float)((IS(dk_has_the_wrong_sign) ? -ds : ds) * (double)x.q[d]);
        }
    }
}

static void clear(const lathe_attention_problem *p, const lathe_attention_args *a, int bit, void *x,
                  int64_t tokens, int64_t width, int64_t stride)
{
    const uint32_t adds = IS(adds_to_all_or_none) ? (a->accumulate != 0 ? 7u : 0u) : a->accumulate;
    (void)p;
    if (IS(always_adds) || (!IS(ignores_accumulate) && adds >> bit & 1u))
        return;
    for (int64_t i = 0; i < tokens * width; i++)
        ((float *)x)[i / width * stride + i % width] = 0.0f;
}

static lathe_status forward(void *self, const lathe_attention_problem *p,
                            const lathe_attention_args *a)
{
    instance *x = self;
    misbehave(x->host);
    n_runs++;
    if (x->calls < 1000000 && shared_scale == 0.0f)
        shared_scale = p->scale;
    for (int64_t n = 0; n < p->batch * p->t_q * p->n_heads; n++)
        forward_one(p, a, n);
    if (IS(writes_past_the_end))
        ((float *)a->o)[p->batch * p->t_q * p->o_stride] = 0.0f;
    if (IS(writes_past_its_scratch))
        memset(a->scratch, 0, (size_t)(8 * p->t_k + 80));
    return LATHE_OK;
}

static lathe_status backward(void *self, const lathe_attention_problem *p,
                             const lathe_attention_args *a)
{
    const int64_t kv = (int64_t)p->n_kv_heads * p->head_dim;
    const int64_t values = (int64_t)p->n_kv_heads * value_dim(p);
    (void)self;
    clear(p, a, 0, a->dq, p->batch * p->t_q, (int64_t)p->n_heads * p->head_dim, p->dq_stride);
    clear(p, a, 1, a->dk, p->batch * p->t_k, kv, p->dk_stride);
    clear(p, a, 2, a->dv, p->batch * p->t_k, values, p->dv_stride);
    for (int64_t n = 0; n < p->batch * p->t_q * p->n_heads; n++)
        backward_one(p, a, n);
    return LATHE_OK;
}

static const lathe_attention_v1 table = {
    .size = sizeof table,
    .revision = LATHE_ATTENTION_REVISION,
    .score = IS(null_score) ? NULL : score,
    .forward_scratch = scratch,
    .backward_scratch = scratch,
    .forward = IS(null_forward) ? NULL : forward,
    .backward = IS(null_backward) ? NULL : backward,
};

FAULTY_PLUGIN(LATHE_KIND_ATTENTION, LATHE_ATTENTION_REVISION, &table);

/* The reference attention backend: stores all scores of one head, [Tq,Tk], and computes each
 * formula in one line. For checking other backends, and for machines that no other backend
 * supports.
 *
 * A work item is a (batch row, key head); its query heads are processed one after another, so dk
 * and dv are added in a fixed order and the result does not depend on the number of threads.
 *
 * Scratch of one worker, f32, in this order:
 *   k [Tk,D]  v [Tk,Dv]  q [Tq,D]  o [Tq,Dv]  p [Tq,Tk]                                forward
 *   + dk [Tk,D]  dv [Tk,Dv]  dq [Tq,D]  do [Tq,Dv]  ds [Tq,Tk]                         backward
 */
#include <math.h>

#include "lathe/kit/attention_kit.h"

__extension__ typedef _Float16 half;

typedef struct reference {
    const lathe_host *host;
} reference;

typedef struct call {
    const lathe_attention_problem *p;
    const lathe_attention_args *a;
    float *scratch;
    int64_t worker_floats;
} call;

/* Parts of one worker's scratch. */
typedef struct pieces {
    float *k, *v, *q, *o, *p, *dk, *dv, *dq, *d_o, *ds;
} pieces;

static float load(const void *base, int64_t i, int32_t dtype)
{
    if (dtype == LATHE_F32)
        return ((const float *)base)[i];
    if (dtype == LATHE_BF16)
        return lathe_bf16_to_f32(((const uint16_t *)base)[i]);
    return (float)((const half *)base)[i];
}

static void store(void *base, int64_t i, int32_t dtype, float x)
{
    if (dtype == LATHE_F32)
        ((float *)base)[i] = x;
    else if (dtype == LATHE_BF16)
        ((uint16_t *)base)[i] = lathe_f32_to_bf16(x);
    else
        ((half *)base)[i] = (half)x;
}

/* dst [rows,n] = the rows of one head, `stride` elements apart, from element `first` on. */
static void gather(float *dst, const void *src, int64_t first, int64_t stride, int64_t rows,
                   int64_t n, int32_t dtype)
{
    for (int64_t t = 0; t < rows; t++)
        for (int64_t d = 0; d < n; d++)
            dst[t * n + d] = load(src, first + t * stride + d, dtype);
}

/* Like gather, for the keys or values of batch row b, of head hk. */
static void gather_keys(float *dst, const void *src, const call *c, int64_t b, int64_t hk,
                        int64_t stride, int64_t n)
{
    const lathe_attention_problem *p = c->p;
    const int64_t rows = lathe_attention_length(p, c->a->kv_len, b);
    for (int64_t t = 0; t < rows; t++)
        gather(dst + t * n, src, lathe_attention_key(p, c->a->kv_len, b, t) * stride + hk * n,
               stride, 1, n, p->dtype);
}

static void scatter(void *dst, const float *src, int64_t first, int64_t stride, int64_t rows,
                    int64_t n, int32_t dtype, uint32_t add)
{
    for (int64_t t = 0; t < rows; t++)
        for (int64_t d = 0; d < n; d++) {
            const int64_t i = first + t * stride + d;
            const float x = src[t * n + d];
            store(dst, i, dtype, add ? x + load(dst, i, dtype) : x);
        }
}

static int64_t worker_floats(const lathe_attention_problem *p, int backward)
{
    const int64_t both = p->head_dim + lathe_attention_value_dim(p);
    const int64_t one = (p->t_k + p->t_q) * both + p->t_q * p->t_k;
    return ((backward ? 2 * one : one) + 15) / 16 * 16;
}

static pieces carve(const lathe_attention_problem *p, float *f)
{
    const int64_t n = p->head_dim, m = lathe_attention_value_dim(p), s = p->t_q * p->t_k;
    pieces w;
    w.k = f;
    w.v = w.k + p->t_k * n;
    w.q = w.v + p->t_k * m;
    w.o = w.q + p->t_q * n;
    w.p = w.o + p->t_q * m;
    w.dk = w.p + s; /* the following only in the backward */
    w.dv = w.dk + p->t_k * n;
    w.dq = w.dv + p->t_k * m;
    w.d_o = w.dq + p->t_q * n;
    w.ds = w.d_o + p->t_q * m;
    return w;
}

/* Query i of row b sees the keys [*lo, *hi). */
static void visible(const call *c, int64_t b, int64_t i, int64_t *lo, int64_t *hi)
{
    const lathe_attention_problem *p = c->p;
    const int64_t len = lathe_attention_length(p, c->a->kv_len, b);
    const int64_t at = i + len - p->t_q;
    *lo = 0;
    *hi = len;
    if (p->causal && at + 1 < *hi)
        *hi = at + 1;
    if (c->a->key_end && c->a->key_end[b * p->t_q + i] < *hi)
        *hi = c->a->key_end[b * p->t_q + i];
    if (p->window > 0 && at - p->window + 1 > *lo)
        *lo = at - p->window + 1;
    if (c->a->doc_start && c->a->doc_start[b * p->t_q + i] > *lo)
        *lo = c->a->doc_start[b * p->t_q + i];
}

static float dot(const float *a, const float *b, int64_t n)
{
    float sum[8] = {0}, total = 0.0f; /* eight independent sums: one vector */
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int64_t j = 0; j < 8; j++)
            sum[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        total += a[i] * b[i];
    for (int64_t j = 0; j < 8; j++)
        total += sum[j];
    return total;
}

static void add_scaled(float *y, float a, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static float score_of(const lathe_attention_problem *p, const float *q, const float *k)
{
    const float s = p->scale * dot(q, k, p->head_dim);
    return p->softcap > 0.0f ? p->softcap * tanhf(s / p->softcap) : s;
}

/* The bias of key j is slope * (j - at); sink: the score without a value, -inf without sinks. */
typedef struct bias {
    float slope, sink;
    int64_t at;
} bias;

static bias bias_of(const call *c, int64_t b, int64_t h, int64_t i)
{
    const int64_t len = lathe_attention_length(c->p, c->a->kv_len, b);
    return (bias){c->a->slopes != NULL ? c->a->slopes[h] : 0.0f,
                  c->a->sinks != NULL ? c->a->sinks[h] : -INFINITY, i + len - c->p->t_q};
}

/* Computes o and lse of one query; s [Tk] ends as the probabilities of keys [lo, hi). */
static float forward_row(const lathe_attention_problem *p, const pieces *w, int64_t i, int64_t lo,
                         int64_t hi, bias more)
{
    const int64_t n = p->head_dim, m = lathe_attention_value_dim(p);
    float *s = w->p + i * p->t_k, *o = w->o + i * m;
    float most = more.sink, sum = 0.0f;
    for (int64_t d = 0; d < m; d++)
        o[d] = 0.0f;
    if (lo >= hi)
        return more.sink;
    for (int64_t j = lo; j < hi; j++) {
        s[j] = score_of(p, w->q + i * n, w->k + j * n) + more.slope * (float)(j - more.at);
        most = fmaxf(most, s[j]);
    }
    for (int64_t j = lo; j < hi; j++) {
        s[j] = expf(s[j] - most);
        sum += s[j];
    }
    sum += expf(more.sink - most);
    for (int64_t j = lo; j < hi; j++)
        add_scaled(o, s[j] / sum, w->v + j * m, m);
    return most + logf(sum);
}

static void forward_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const call *c = arg;
    const lathe_attention_problem *p = c->p;
    const int64_t n = p->head_dim, m = lathe_attention_value_dim(p);
    const int64_t group = p->n_heads / p->n_kv_heads;
    const pieces w = carve(p, c->scratch + worker * c->worker_floats);
    for (int64_t item = begin; item < end; item++) {
        const int64_t b = item / p->n_kv_heads, hk = item % p->n_kv_heads;
        gather_keys(w.k, c->a->k, c, b, hk, p->k_stride, n);
        gather_keys(w.v, c->a->v, c, b, hk, p->v_stride, m);
        for (int64_t h = hk * group; h < (hk + 1) * group; h++) {
            gather(w.q, c->a->q, b * p->t_q * p->q_stride + h * n, p->q_stride, p->t_q, n,
                   p->dtype);
            for (int64_t i = 0; i < p->t_q; i++) {
                int64_t lo, hi;
                visible(c, b, i, &lo, &hi);
                c->a->lse[(b * p->n_heads + h) * p->t_q + i] =
                    forward_row(p, &w, i, lo, hi, bias_of(c, b, h, i));
            }
            scatter(c->a->o, w.o, b * p->t_q * p->o_stride + h * m, p->o_stride, p->t_q, m,
                    p->dtype, 0);
        }
    }
}

/* With p = exp(s - lse), dp = do v^T and delta = sum(do * o): ds = p * (dp - delta). */
static void backward_row(const lathe_attention_problem *p, const pieces *w, int64_t i, int64_t lo,
                         int64_t hi, float lse, bias more)
{
    const int64_t n = p->head_dim, m = lathe_attention_value_dim(p);
    const float *q = w->q + i * n, *d_o = w->d_o + i * m;
    const float delta = dot(d_o, w->o + i * m, m);
    for (int64_t j = lo; j < hi; j++) {
        const float s = score_of(p, q, w->k + j * n);
        const float slope = p->softcap > 0.0f ? 1.0f - (s / p->softcap) * (s / p->softcap) : 1.0f;
        const float prob = expf(s + more.slope * (float)(j - more.at) - lse);
        const float dp = dot(d_o, w->v + j * m, m);
        const float ds = prob * (dp - delta) * slope * p->scale;
        w->p[i * p->t_k + j] = prob;
        w->ds[i * p->t_k + j] = ds;
        add_scaled(w->dq + i * n, ds, w->k + j * n, n);
        add_scaled(w->dk + j * n, ds, q, n);
        add_scaled(w->dv + j * m, prob, d_o, m);
    }
}

static void zero(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = 0.0f;
}

static void backward_head(const call *c, const pieces *w, int64_t b, int64_t h)
{
    const lathe_attention_problem *p = c->p;
    const lathe_attention_args *a = c->a;
    const int64_t n = p->head_dim, m = lathe_attention_value_dim(p), tq = p->t_q;
    gather(w->q, a->q, b * tq * p->q_stride + h * n, p->q_stride, tq, n, p->dtype);
    gather(w->o, a->o, b * tq * p->o_stride + h * m, p->o_stride, tq, m, p->dtype);
    gather(w->d_o, a->d_o, b * tq * p->o_stride + h * m, p->o_stride, tq, m, p->dtype);
    zero(w->dq, tq * n);
    for (int64_t i = 0; i < tq; i++) {
        int64_t lo, hi;
        visible(c, b, i, &lo, &hi);
        backward_row(p, w, i, lo, hi, a->lse[(b * p->n_heads + h) * tq + i], bias_of(c, b, h, i));
    }
    if (a->dq)
        scatter(a->dq, w->dq, b * tq * p->dq_stride + h * n, p->dq_stride, tq, n, p->dtype,
                a->accumulate & 1u);
}

static void backward_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const call *c = arg;
    const lathe_attention_problem *p = c->p;
    const lathe_attention_args *a = c->a;
    const int64_t n = p->head_dim, m = lathe_attention_value_dim(p);
    const int64_t tk = p->t_k, group = p->n_heads / p->n_kv_heads;
    const pieces w = carve(p, c->scratch + worker * c->worker_floats);
    for (int64_t item = begin; item < end; item++) {
        const int64_t b = item / p->n_kv_heads, hk = item % p->n_kv_heads;
        gather(w.k, a->k, b * tk * p->k_stride + hk * n, p->k_stride, tk, n, p->dtype);
        gather(w.v, a->v, b * tk * p->v_stride + hk * m, p->v_stride, tk, m, p->dtype);
        zero(w.dk, tk * n);
        zero(w.dv, tk * m);
        for (int64_t h = hk * group; h < (hk + 1) * group; h++)
            backward_head(c, &w, b, h);
        if (a->dk)
            scatter(a->dk, w.dk, b * tk * p->dk_stride + hk * n, p->dk_stride, tk, n, p->dtype,
                    a->accumulate & 2u);
        if (a->dv)
            scatter(a->dv, w.dv, b * tk * p->dv_stride + hk * m, p->dv_stride, tk, m, p->dtype,
                    a->accumulate & 4u);
    }
}

static int32_t workers(const reference *self, const lathe_attention_problem *p)
{
    const int32_t n = self->host->n_threads();
    return p->n_threads > n ? p->n_threads : n;
}

static int64_t reference_forward_scratch(void *self, const lathe_attention_problem *p)
{
    return workers(self, p) * worker_floats(p, 0) * (int64_t)sizeof(float);
}

static int64_t reference_backward_scratch(void *self, const lathe_attention_problem *p)
{
    return workers(self, p) * worker_floats(p, 1) * (int64_t)sizeof(float);
}

static lathe_status reference_forward(void *self, const lathe_attention_problem *p,
                                      const lathe_attention_args *a)
{
    const lathe_host *const host = lathe_attention_host(self);
    LATHE_TRY(lathe_attention_check(host, p, a, reference_forward_scratch(self, p)));
    call c = {p, a, a->scratch, worker_floats(p, 0)};
    host->parallel_for(p->batch * p->n_kv_heads, 1, forward_items, &c);
    return LATHE_OK;
}

static lathe_status reference_backward(void *self, const lathe_attention_problem *p,
                                       const lathe_attention_args *a)
{
    const lathe_host *const host = lathe_attention_host(self);
    LATHE_TRY(lathe_attention_check_backward(host, p, a, reference_backward_scratch(self, p)));
    call c = {p, a, a->scratch, worker_floats(p, 1)};
    host->parallel_for(p->batch * p->n_kv_heads, 1, backward_items, &c);
    return LATHE_OK;
}

static int32_t reference_score(void *self, const lathe_attention_problem *p, char *why,
                               int64_t why_bytes)
{
    (void)self;
    return lathe_attention_scored(lathe_attention_host_refusal(p), "plain loops, [Tq,Tk] scratch",
                                  LATHE_SCORE_PORTABLE, why, why_bytes);
}

LATHE_INSTANCE_PLAIN(reference)

LATHE_ATTENTION_ENTRY(reference, .family = "cpu", .version = "1.0.0",
                      .summary = "softmax attention with the scores written out, for checking",
                      .source = "arXiv:1706.03762, equation 1");

/* A case of the attention tests: its problem in memory, filled with random numbers, and the exact
 * results and gradients in double. Part of attention_cases.h. */
#ifndef LATHE_TESTS_ATTENTION_REFERENCE_H
#define LATHE_TESTS_ATTENTION_REFERENCE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/attention.h"

#ifndef ATTENTION_GAP
#define ATTENTION_GAP 5
#define ATTENTION_O_GAP 3 /* gap of o, different from the others */
#endif

typedef struct attention_case {
    int32_t dtype;
    int64_t batch, t_q, t_k;
    int32_t heads, kv_heads, dim;
    int32_t causal, window, packed, cached;
    float softcap;
    int32_t fused; /* q, k, v and their gradients are columns of one tensor; t_q == t_k */
    uint32_t accumulate;
    int32_t forward_only;
    int32_t bounded;   /* ATTENTION_TWO_WAY, _PREFIX or _IRREGULAR; 0: no key_end */
    int32_t alibi;     /* 1: with slopes 0.5, 0.25, ... of the heads */
    int32_t sinks;     /* 1: with sinks -2, 1.5, 5, ... of the heads */
    int32_t value_dim; /* 0: dim; not with `fused` */
} attention_case;

enum { ATTENTION_TWO_WAY = 1, ATTENTION_PREFIX, ATTENTION_IRREGULAR };

/* Memory of one case. Stored tensors have the case's dtype; x_* are their values, dense, in
 * double. */
typedef struct attention_memory {
    lathe_attention_problem p;
    void *q, *k, *v, *o, *d_o, *dq, *dk, *dv; /* pointers into store */
    void *store[8];
    float *lse, *slopes, *sinks;
    int32_t *doc_start, *key_end, *kv_len;
    double *x_q, *x_k, *x_v, *x_do; /* inputs */
    double *x_o, *x_lse;            /* exact results */
    double *x_dq, *x_dk, *x_dv;     /* exact gradients */
    double *a_dq, *a_dk, *a_dv;     /* sums of the magnitudes of the terms, for the error bounds */
    double *old_dq, *old_dk, *old_dv; /* content of the gradients before the backward */
    double most_v, most_s;            /* largest |v|; largest scale * sum |q k| */
} attention_memory;

__extension__ typedef _Float16 attention_half;

static uint64_t attention_random_state = 1;

/* Approximately normal, deterministic, in [-3.5, 3.5]. */
static inline double attention_random(void)
{
    double sum = 0.0;
    for (int i = 0; i < 4; i++) {
        attention_random_state =
            attention_random_state * 6364136223846793005ull + 1442695040888963407ull;
        sum += (double)(attention_random_state >> 11) / 9007199254740992.0;
    }
    return (sum - 2.0) * 1.732;
}

static inline double attention_load(const void *base, int64_t i, int32_t dtype)
{
    if (dtype == LATHE_F32)
        return (double)((const float *)base)[i];
    if (dtype == LATHE_BF16)
        return (double)lathe_bf16_to_f32(((const uint16_t *)base)[i]);
    return (double)((const attention_half *)base)[i];
}

static inline void attention_store(void *base, int64_t i, int32_t dtype, double x)
{
    if (dtype == LATHE_F32)
        ((float *)base)[i] = (float)x;
    else if (dtype == LATHE_BF16)
        ((uint16_t *)base)[i] = lathe_f32_to_bf16((float)x);
    else
        ((attention_half *)base)[i] = (attention_half)x;
}

static inline void *attention_zeroed(int64_t bytes)
{
    void *m = NULL;
    const size_t n = (size_t)((bytes + 127) / 64 * 64);
    cr_assert(posix_memalign(&m, 64, n) == 0);
    memset(m, 0, n);
    return m;
}

static inline double *attention_doubles(int64_t n)
{
    return attention_zeroed(n * 8);
}

/* Fills a strided tensor with random numbers; returns its dense values. */
static inline double *attention_fill(void *base, int32_t dtype, int64_t rows, int64_t width,
                                     int64_t stride)
{
    double *x = attention_doubles(rows * width);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++) {
            attention_store(base, r * stride + c, dtype, attention_random());
            x[r * width + c] = attention_load(base, r * stride + c, dtype);
        }
    return x;
}

static inline int64_t attention_value_dim(const lathe_attention_problem *p)
{
    return p->value_dim > 0 ? p->value_dim : p->head_dim;
}

static inline void attention_range(const attention_memory *m, int64_t b, int64_t i, int64_t *lo,
                                   int64_t *hi)
{
    const lathe_attention_problem *p = &m->p;
    *lo = p->t_k; /* by the definition, key by key; the visible keys are one interval */
    *hi = 0;
    const int64_t len = m->kv_len ? m->kv_len[b] : p->t_k, at = i + len - p->t_q;
    for (int64_t j = 0; j < len; j++) {
        if ((p->causal && j > at) || (p->window > 0 && j <= at - p->window) ||
            (m->doc_start && j < m->doc_start[b * p->t_q + i]) ||
            (m->key_end && j >= m->key_end[b * p->t_q + i]))
            continue;
        *lo = j < *lo ? j : *lo;
        *hi = j + 1;
    }
}

/* Computes one query row: o, lse and, with gradients, its part of dq, dk, dv. s, pr: room for
 * t_k and for 2 t_k. */
static inline void attention_exact_row(attention_memory *m, int64_t b, int64_t h, int64_t i,
                                       double *s, double *pr, int with_gradients)
{
    const lathe_attention_problem *p = &m->p;
    const int64_t n = p->head_dim, nv = attention_value_dim(p);
    const int64_t hk = h / (p->n_heads / p->n_kv_heads);
    const int64_t query = (b * p->t_q + i) * p->n_heads + h, row = query * n, o_row = query * nv;
    const double *q = m->x_q + row, *g = m->x_do + o_row, cap = (double)p->softcap;
    const double sink = m->sinks ? (double)m->sinks[h] : (double)-INFINITY;
    double most = sink, sum = 0.0, delta = 0.0, delta_abs = 0.0;
    const int64_t at = i + (m->kv_len ? m->kv_len[b] : p->t_k) - p->t_q;
    double *capped = pr + p->t_k;
    int64_t lo, hi;
    attention_range(m, b, i, &lo, &hi);
    for (int64_t j = lo; j < hi; j++) {
        const double *k = m->x_k + ((b * p->t_k + j) * p->n_kv_heads + hk) * n;
        double dot = 0.0, magnitude = 0.0;
        for (int64_t d = 0; d < n; d++) {
            dot += q[d] * k[d];
            magnitude += fabs(q[d] * k[d]);
        }
        s[j] = dot * (double)p->scale;
        if (cap > 0.0)
            s[j] = cap * tanh(s[j] / cap);
        capped[j] = s[j];
        if (m->slopes)
            s[j] += (double)m->slopes[h] * (double)(j - at);
        most = fmax(most, s[j]);
        m->most_s = fmax(m->most_s, magnitude * (double)p->scale);
    }
    for (int64_t j = lo; j < hi; j++)
        sum += pr[j] = exp(s[j] - most);
    sum += m->sinks ? exp(sink - most) : 0.0;
    m->x_lse[(b * p->n_heads + h) * p->t_q + i] = lo < hi ? most + log(sum) : sink;
    for (int64_t j = lo; j < hi; j++) {
        const double *v = m->x_v + ((b * p->t_k + j) * p->n_kv_heads + hk) * nv;
        pr[j] /= sum;
        for (int64_t d = 0; d < nv; d++)
            m->x_o[o_row + d] += pr[j] * v[d];
    }
    if (!with_gradients)
        return;
    for (int64_t d = 0; d < nv; d++) {
        delta += g[d] * m->x_o[o_row + d];
        delta_abs += fabs(g[d] * m->x_o[o_row + d]);
    }
    for (int64_t j = lo; j < hi; j++) {
        const int64_t head = (b * p->t_k + j) * p->n_kv_heads + hk, key = head * n;
        const int64_t value = head * nv;
        const double slope = cap > 0.0 ? 1.0 - capped[j] * capped[j] / (cap * cap) : 1.0;
        double dp = 0.0, dp_abs = 0.0;
        for (int64_t d = 0; d < nv; d++) {
            dp += g[d] * m->x_v[value + d];
            dp_abs += fabs(g[d] * m->x_v[value + d]);
        }
        const double f = pr[j] * slope * (double)p->scale;
        const double ds = f * (dp - delta), ds_abs = f * (dp_abs + delta_abs);
        for (int64_t d = 0; d < n; d++) {
            m->x_dq[row + d] += ds * m->x_k[key + d];
            m->x_dk[key + d] += ds * q[d];
            m->a_dq[row + d] += ds_abs * fabs(m->x_k[key + d]);
            m->a_dk[key + d] += ds_abs * fabs(q[d]);
        }
        for (int64_t d = 0; d < nv; d++) {
            m->x_dv[value + d] += pr[j] * g[d];
            m->a_dv[value + d] += pr[j] * fabs(g[d]);
        }
    }
}

static inline void attention_exact(attention_memory *m, int with_gradients)
{
    const lathe_attention_problem *p = &m->p;
    const int64_t queries = p->batch * p->t_q * p->n_heads,
                  keys = p->batch * p->t_k * p->n_kv_heads;
    const int64_t n = p->head_dim, nv = attention_value_dim(p);
    double *s = attention_doubles(p->t_k), *pr = attention_doubles(2 * p->t_k);
    double *const sums[] = {m->x_o, m->x_dq, m->a_dq, m->x_dk, m->x_dv, m->a_dk, m->a_dv};
    const int64_t counts[] = {queries * nv, queries * n, queries * n, keys * n,
                              keys * nv,    keys * n,    keys * nv};
    for (int t = 0; t < 7; t++)
        memset(sums[t], 0, (size_t)counts[t] * sizeof(double));
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->n_heads; h++)
            for (int64_t i = 0; i < p->t_q; i++)
                attention_exact_row(m, b, h, i, s, pr, with_gradients);
    free(s);
    free(pr);
}

/* Lays out the tensors of a case. Rows that are not fused have gaps, so that a backend that ignores
 * a stride is caught. */
static inline void attention_layout(attention_memory *m, const attention_case *c)
{
    lathe_attention_problem *p = &m->p;
    const int64_t e = lathe_dtype_bytes(c->dtype), n = c->dim, nv = attention_value_dim(p);
    const int64_t rq = c->batch * c->t_q, rk = c->batch * c->t_k;
    if (c->fused) {
        const int64_t width = (c->heads + 2 * c->kv_heads) * n;
        p->q_stride = p->k_stride = p->v_stride = width;
        p->dq_stride = p->dk_stride = p->dv_stride = width;
        m->store[0] = attention_zeroed(rq * width * e);
        m->store[1] = attention_zeroed(rq * width * e);
        m->q = m->store[0];
        m->k = (char *)m->store[0] + c->heads * n * e;
        m->v = (char *)m->store[0] + (c->heads + c->kv_heads) * n * e;
        m->dq = m->store[1];
        m->dk = (char *)m->store[1] + c->heads * n * e;
        m->dv = (char *)m->store[1] + (c->heads + c->kv_heads) * n * e;
    } else {
        p->q_stride = p->dq_stride = c->heads * n + ATTENTION_GAP;
        p->k_stride = p->dk_stride = c->kv_heads * n + ATTENTION_GAP;
        p->v_stride = p->dv_stride = c->kv_heads * nv + ATTENTION_GAP;
        m->q = m->store[0] = attention_zeroed(rq * p->q_stride * e);
        m->dq = m->store[1] = attention_zeroed(rq * p->q_stride * e);
        m->k = m->store[2] = attention_zeroed(rk * p->k_stride * e);
        m->v = m->store[3] = attention_zeroed(rk * p->v_stride * e);
        m->dk = m->store[4] = attention_zeroed(rk * p->k_stride * e);
        m->dv = m->store[5] = attention_zeroed(rk * p->v_stride * e);
    }
    p->o_stride = c->heads * nv + ATTENTION_O_GAP;
    m->o = m->store[6] = attention_zeroed(rq * p->o_stride * e);
    m->d_o = m->store[7] = attention_zeroed(rq * p->o_stride * e);
}

/* The last keys of one row's queries, for the documents of doc_start (NULL: one document). A prefix
 * is a third of its document; irregular bounds are also before key 0 and after the last key. */
static inline void attention_bounds(const attention_case *c, const int32_t *doc_start,
                                    int32_t *key_end)
{
    for (int64_t i = 0, end; i < c->t_q; i = end) {
        for (end = i + 1; end < c->t_q && (!doc_start || doc_start[end] == doc_start[i]); end++) {
        }
        const int64_t prefix = i + (end - i) / 3;
        for (int64_t t = i; t < end; t++) {
            const int64_t until = c->bounded == ATTENTION_TWO_WAY ? (end == c->t_q ? c->t_k : end)
                                  : t < prefix                    ? prefix
                                                                  : t + 1;
            key_end[t] =
                (int32_t)(c->bounded == ATTENTION_IRREGULAR ? t * 37 % (c->t_k + 4) - 2 : until);
        }
    }
}

static inline void attention_memory_init(attention_memory *m, const attention_case *c)
{
    memset(m, 0, sizeof *m);
    lathe_attention_problem *p = &m->p;
    *p = (lathe_attention_problem){.size = sizeof *p,
                                   .dtype = c->dtype,
                                   .batch = c->batch,
                                   .t_q = c->t_q,
                                   .t_k = c->t_k,
                                   .n_heads = c->heads,
                                   .n_kv_heads = c->kv_heads,
                                   .head_dim = c->dim,
                                   .value_dim = c->value_dim,
                                   .causal = c->causal,
                                   .window = c->window,
                                   .packed = c->packed,
                                   .cached = c->cached,
                                   .bounded = c->bounded != 0,
                                   .alibi = c->alibi,
                                   .sinks = c->sinks,
                                   .n_threads = 2,
                                   .scale = 1.0f / sqrtf((float)c->dim),
                                   .softcap = c->softcap,
                                   .flags = LATHE_FLAG_DETERMINISTIC,
                                   .need_backward = !c->forward_only,
                                   .device = attention_device()};
    attention_layout(m, c);
    const int64_t rq = c->batch * c->t_q, rk = c->batch * c->t_k;
    const int64_t wq = c->heads * (int64_t)c->dim, wk = c->kv_heads * (int64_t)c->dim;
    const int64_t wo = c->heads * attention_value_dim(p), wv = c->kv_heads * attention_value_dim(p);
    attention_random_state = (uint64_t)(c->t_q * 1000 + c->dim * 10 + c->heads);
    m->x_q = attention_fill(m->q, c->dtype, rq, wq, p->q_stride);
    m->x_k = attention_fill(m->k, c->dtype, rk, wk, p->k_stride);
    m->x_v = attention_fill(m->v, c->dtype, rk, wv, p->v_stride);
    m->x_do = attention_fill(m->d_o, c->dtype, rq, wo, p->o_stride);
    m->old_dq = attention_fill(m->dq, c->dtype, rq, wq, p->dq_stride);
    m->old_dk = attention_fill(m->dk, c->dtype, rk, wk, p->dk_stride);
    m->old_dv = attention_fill(m->dv, c->dtype, rk, wv, p->dv_stride);
    for (int64_t i = 0; i < rk * wv; i++)
        m->most_v = fmax(m->most_v, fabs(m->x_v[i]));
    m->lse = attention_zeroed(c->heads * rq * 4);
    m->x_o = attention_doubles(rq * wo);
    m->x_dq = attention_doubles(rq * wq);
    m->a_dq = attention_doubles(rq * wq);
    m->x_dk = attention_doubles(rk * wk);
    m->a_dk = attention_doubles(rk * wk);
    m->x_dv = attention_doubles(rk * wv);
    m->a_dv = attention_doubles(rk * wv);
    m->x_lse = attention_doubles(c->heads * rq);
    if (c->packed) { /* documents of 1, 4, 9, 16, ... tokens, starting again in every row */
        m->doc_start = attention_zeroed(rq * 4);
        for (int64_t b = 0; b < c->batch; b++)
            for (int64_t i = 0, start = 0, size = 1 + b; i < c->t_q; i++) {
                if (i - start >= size * size) {
                    start = i;
                    size++;
                }
                m->doc_start[b * c->t_q + i] = (int32_t)start;
            }
    }
    if (c->bounded) {
        m->key_end = attention_zeroed(rq * 4);
        for (int64_t b = 0; b < c->batch; b++)
            attention_bounds(c, m->doc_start ? m->doc_start + b * c->t_q : NULL,
                             m->key_end + b * c->t_q);
    }
    if (c->alibi) {
        m->slopes = attention_zeroed(c->heads * 4);
        for (int32_t h = 0; h < c->heads; h++)
            m->slopes[h] = ldexpf(1.0f, -1 - h);
    }
    if (c->sinks) {
        m->sinks = attention_zeroed(c->heads * 4);
        for (int32_t h = 0; h < c->heads; h++)
            m->sinks[h] = -2.0f + 3.5f * (float)h;
    }
    if (c->cached) {
        m->kv_len = attention_zeroed(c->batch * 4);
        for (int64_t b = 0; b < c->batch; b++)
            m->kv_len[b] = (int32_t)(b == 0 ? c->t_k : (c->t_k * (b + 1) / (b + 3)));
    }
}

static inline void attention_memory_fini(attention_memory *m)
{
    for (int i = 0; i < 8; i++)
        free(m->store[i]);
    free(m->slopes);
    free(m->sinks);
    void *const rest[] = {m->lse,  m->doc_start, m->key_end, m->kv_len, m->x_q,   m->x_k,  m->x_v,
                          m->x_do, m->x_o,       m->x_lse,   m->x_dq,   m->x_dk,  m->x_dv, m->a_dq,
                          m->a_dk, m->a_dv,      m->old_dq,  m->old_dk, m->old_dv};
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++)
        free(rest[i]);
}

#endif

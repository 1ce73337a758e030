/* Computes dense attention in double precision, one query at a time. */
#include "graph/ops/attention_exact.h"

#include <math.h>

#include "lathe/kit/attention_kit.h"

/* The index of query i of row b among the keys. */
static int64_t place_of(const lathe_attention_problem *p, const lathe__dense_attention *a,
                        int64_t b, int64_t i)
{
    return i + lathe_attention_length(p, a->kv_len, b) - p->t_q;
}

/* The keys that query i of row b sees: [*first, *last). */
static void keys_of(const lathe_attention_problem *p, const lathe__dense_attention *a, int64_t b,
                    int64_t i, int64_t *first, int64_t *last)
{
    const int64_t length = lathe_attention_length(p, a->kv_len, b);
    const int64_t at = place_of(p, a, b, i);
    *last = p->causal && at + 1 < length ? at + 1 : length;
    if (a->key_end && a->key_end[b * p->t_q + i] < *last)
        *last = a->key_end[b * p->t_q + i];
    *first = p->window > 0 && at - p->window + 1 > 0 ? at - p->window + 1 : 0;
    if (a->doc_start && a->doc_start[b * p->t_q + i] > *first)
        *first = a->doc_start[b * p->t_q + i];
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static void axpy(double alpha, const double *x, double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += alpha * x[i];
}

static void one_query(const lathe_attention_problem *p, const lathe__dense_attention *a, int64_t b,
                      int64_t i, int64_t h)
{
    const int64_t d = p->head_dim, dv = lathe_attention_value_dim(p);
    const int64_t kv = h / (p->n_heads / p->n_kv_heads);
    const int64_t query = (b * p->t_q + i) * p->n_heads + h, at = query * d, o_at = query * dv;
    /* slope: derivative of the soft cap, d capped / d score */
    double *score = a->row, *slope = a->row + p->t_k;
    int64_t first, last;
    double top = a->sinks ? a->sinks[h] : -HUGE_VAL, sum = 0;
    keys_of(p, a, b, i, &first, &last);
    for (int64_t j = first; j < last; j++) {
        const int64_t key = (lathe_attention_key(p, a->kv_len, b, j) * p->n_kv_heads + kv) * d;
        const double s = (double)p->scale * dot(a->q + at, a->k + key, d);
        const double cap = (double)p->softcap, t = cap > 0 ? tanh(s / cap) : 0;
        score[j] = cap > 0 ? cap * t : s;
        if (a->slopes)
            score[j] += a->slopes[h] * (double)(j - place_of(p, a, b, i));
        slope[j] = 1 - t * t;
        top = score[j] > top ? score[j] : top;
    }
    for (int64_t j = first; j < last; j++)
        sum += exp(score[j] - top);
    sum += a->sinks ? exp(a->sinks[h] - top) : 0.0;
    const double lse = sum > 0.0 ? top + log(sum) : -HUGE_VAL;
    a->lse[(b * p->n_heads + h) * p->t_q + i] = lse;
    for (int64_t j = first; j < last; j++)
        axpy(exp(score[j] - lse),
             a->v + (lathe_attention_key(p, a->kv_len, b, j) * p->n_kv_heads + kv) * dv,
             a->o + o_at, dv);
    if (a->dq == NULL)
        return;
    const double o_do = dot(a->o + o_at, a->d_o + o_at, dv);
    for (int64_t j = first; j < last; j++) {
        const int64_t row = lathe_attention_key(p, a->kv_len, b, j) * p->n_kv_heads + kv;
        const int64_t key = row * d, value = row * dv;
        const double w = exp(score[j] - lse);
        const double ds =
            w * (dot(a->d_o + o_at, a->v + value, dv) - o_do) * slope[j] * (double)p->scale;
        axpy(w, a->d_o + o_at, a->dv + value, dv);
        axpy(ds, a->k + key, a->dq + at, d);
        axpy(ds, a->q + at, a->dk + key, d);
    }
}

void lathe__attention_dense(const lathe_attention_problem *p, const lathe__dense_attention *a)
{
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < p->t_q; i++)
            for (int64_t h = 0; h < p->n_heads; h++)
                one_query(p, a, b, i, h);
}

/* Runs a model's forward graph in double, one plain loop per op as op.h defines it: a second
 * implementation to compare the families with transformers without a device. Aborts by
 * assertion. */
#ifndef LATHE_TEST_EVAL_GRAPH_H
#define LATHE_TEST_EVAL_GRAPH_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "graph/ir/ir_graph.h"

typedef struct eval {
    const lathe_graph *g;
    double **v; /* [n_values]; the caller sets inputs, parameters and states before eval_run */
} eval;

static inline int64_t eval_count(const eval *e, lathe_val v)
{
    return lathe_desc_count(&e->g->values[v].desc);
}

static inline double *eval_new(eval *e, lathe_val v)
{
    if (e->v[v] == NULL)
        e->v[v] = calloc((size_t)eval_count(e, v) + 1, sizeof(double));
    return e->v[v];
}

static inline void eval_set_f32(eval *e, lathe_val v, const float *x)
{
    double *to = eval_new(e, v);
    for (int64_t i = 0; i < eval_count(e, v); i++)
        to[i] = (double)x[i];
}

static inline void eval_set_i32(eval *e, lathe_val v, const int32_t *x)
{
    double *to = eval_new(e, v);
    for (int64_t i = 0; i < eval_count(e, v); i++)
        to[i] = x[i];
}

static inline void eval_linear(eval *e, const lathe_ir_node *n)
{
    const double *x = e->v[n->in[0]], *w = e->v[n->in[1]];
    const double *b = n->in[2] == LATHE_NONE ? NULL : e->v[n->in[2]];
    const int64_t *d = e->g->values[n->in[1]].desc.dims, rows = eval_count(e, n->in[0]) / d[1];
    double *y = eval_new(e, n->out[0]);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < d[0]; o++) {
            double sum = b != NULL ? b[o] : 0.0;
            for (int64_t i = 0; i < d[1]; i++)
                sum += x[r * d[1] + i] * w[o * d[1] + i];
            y[r * d[0] + o] = sum;
        }
}

static inline void eval_norm(eval *e, const lathe_ir_node *n)
{
    const double *x = e->v[n->in[0]], *w = e->v[n->in[1]];
    const double *b = n->op == LATHE_OP_LAYERNORM ? e->v[n->in[2]] : NULL;
    const int64_t d = eval_count(e, n->in[1]), rows = eval_count(e, n->in[0]) / d;
    double *y = eval_new(e, n->out[0]);
    for (int64_t r = 0; r < rows; r++, x += d, y += d) {
        double mean = 0, square = 0;
        for (int64_t i = 0; b != NULL && i < d; i++)
            mean += x[i] / (double)d;
        for (int64_t i = 0; i < d; i++)
            square += (x[i] - mean) * (x[i] - mean) / (double)d;
        for (int64_t i = 0; i < d; i++)
            y[i] = (x[i] - mean) / sqrt(square + (double)n->attrs.eps) * w[i] +
                   (b != NULL ? b[i] : 0.0);
    }
}

static inline void eval_rope(eval *e, const lathe_ir_node *n)
{
    const int64_t d = n->attrs.head_dim, width = e->g->values[n->in[0]].desc.dims[1];
    const int64_t half = e->g->values[n->in[2]].desc.dims[2];
    const double *x = e->v[n->in[0]], *pos = e->v[n->in[1]];
    const float *table = e->g->values[n->in[2]].data;
    double *y = eval_new(e, n->out[0]);
    for (int64_t i = 0; i < eval_count(e, n->in[0]); i++) {
        const int64_t at = i % d, k = at % half, p = (int64_t)pos[i / width];
        cr_assert_lt(p, e->g->values[n->in[2]].desc.dims[0]);
        const double c = (double)table[p * 2 * half + k], s = (double)table[(2 * p + 1) * half + k];
        y[i] = at < half       ? x[i] * c - x[i + half] * s
               : at < 2 * half ? x[i] * c + x[i - half] * s
                               : x[i];
    }
}

/* Computes o of one query head from its inputs, for keys [first, last). */
static inline void eval_query(const double *q, const double *k, const double *v, int64_t stride,
                              int64_t d, int64_t first, int64_t last, double scale, double *o)
{
    double *score = calloc((size_t)last + 1, sizeof *score), high = -INFINITY, sum = 0;
    for (int64_t j = first; j <= last; j++) {
        for (int64_t i = 0; i < d; i++)
            score[j] += scale * q[i] * k[j * stride + i];
        high = fmax(high, score[j]);
    }
    for (int64_t j = first; j <= last; j++)
        sum += score[j] = exp(score[j] - high);
    for (int64_t i = 0; i < d; i++) {
        o[i] = 0;
        for (int64_t j = first; j <= last; j++)
            o[i] += score[j] / sum * v[j * stride + i];
    }
    free(score);
}

static inline void eval_attention(eval *e, const lathe_ir_node *n)
{
    const lathe_op_attrs *a = &n->attrs;
    const int64_t h = a->n_heads, kv = a->n_kv_heads, d = a->head_dim,
                  rows = eval_count(e, n->out[0]) / (h * d);
    const int64_t t = rows / a->batch, fused = a->fused_qkv;
    const int64_t q_stride = fused ? (h + 2 * kv) * d : h * d, k_stride = fused ? q_stride : kv * d;
    const double *q = e->v[n->in[0]], *k = fused ? q + h * d : e->v[n->in[1]];
    const double *v = fused ? q + (h + kv) * d : e->v[n->in[2]];
    const int64_t t_k = fused ? t : eval_count(e, n->in[1]) / (kv * d) / a->batch;
    double *o = eval_new(e, n->out[0]);
    cr_assert(a->causal == 1 && a->window == 0);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t head = 0; head < h; head++) {
            const int64_t b = r / t,
                          length = n->in[4] == LATHE_NONE ? t_k : (int64_t)e->v[n->in[4]][b];
            const int64_t at = r % t + length - t;
            const int64_t first = n->in[3] == LATHE_NONE ? 0 : (int64_t)e->v[n->in[3]][r];
            const int64_t base = b * t_k * k_stride + head / (h / kv) * d;
            eval_query(q + r * q_stride + head * d, k + base, v + base, k_stride, d, first, at,
                       (double)a->scale, o + (r * h + head) * d);
        }
}

static inline void eval_kv_append(eval *e, const lathe_ir_node *n)
{
    const int64_t *c = e->g->values[n->in[0]].desc.dims, tq = eval_count(e, n->in[1]) / c[2] / c[0];
    double *cache = e->v[n->in[0]];
    for (int64_t i = 0; i < eval_count(e, n->in[1]); i++) {
        const int64_t b = i / (tq * c[2]), row = (int64_t)e->v[n->in[2]][b] - tq + i / c[2] % tq;
        cr_assert(row >= 0 && row < c[1]);
        cache[(b * c[1] + row) * c[2] + i % c[2]] = e->v[n->in[1]][i];
    }
    e->v[n->out[0]] = cache; /* in place */
}

static inline void eval_plain(eval *e, const lathe_ir_node *n)
{
    const double *x = e->v[n->in[0]],
                 *b = n->n_in > 1 && n->in[1] != LATHE_NONE ? e->v[n->in[1]] : NULL;
    const int64_t *d = e->g->values[n->in[0]].desc.dims,
                  *w = b != NULL ? e->g->values[n->in[1]].desc.dims : d;
    double *y = eval_new(e, n->out[0]);
    for (int64_t i = 0; i < eval_count(e, n->out[0]); i++)
        switch (n->op) {
        case LATHE_OP_EMBED:
            y[i] = b[(int64_t)x[i / w[1]] * w[1] + i % w[1]];
            break;
        case LATHE_OP_ADD:
            y[i] = x[i] + b[i];
            break;
        case LATHE_OP_SWIGLU:
            y[i] = x[i] / (1 + exp(-x[i])) * b[i];
            break;
        case LATHE_OP_GELU_TANH:
            y[i] = 0.5 * x[i] * (1 + tanh(sqrt(2 / M_PI) * (x[i] + 0.044715 * x[i] * x[i] * x[i])));
            break;
        case LATHE_OP_TRANSPOSE:
            y[i] = x[i % d[0] * d[1] + i / d[0]];
            break;
        case LATHE_OP_SLICE:
            y[i] = x[n->attrs.start * d[1] + i];
            break;
        default:
            cr_assert(0, "a model's forward should not need op %d (%s)", n->op, n->label);
        }
}

static inline void eval_run(eval *e)
{
    for (int32_t i = 0; i < e->g->n_nodes; i++) {
        const lathe_ir_node *n = &e->g->nodes[i];
        switch (n->op) {
        case LATHE_OP_LINEAR:
            eval_linear(e, n);
            break;
        case LATHE_OP_RMSNORM:
        case LATHE_OP_LAYERNORM:
            eval_norm(e, n);
            break;
        case LATHE_OP_ROPE:
            eval_rope(e, n);
            break;
        case LATHE_OP_ATTENTION:
            eval_attention(e, n);
            break;
        case LATHE_OP_KV_APPEND:
            eval_kv_append(e, n);
            break;
        default:
            eval_plain(e, n);
        }
    }
}

#endif

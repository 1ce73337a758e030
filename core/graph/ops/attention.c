/* ATTENTION and its derivative, which plugins of kind attention run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/ir/flops.h"
#include "graph/ops/attention_exact.h"
#include "graph/ops/rules.h"

static int64_t value_dim(const lathe_op_attrs *a)
{
    return a->value_dim > 0 ? a->value_dim : a->head_dim;
}

static lathe_status infer_attention(lathe_op_problem *p)
{
    const lathe_op_attrs *a = &p->attrs;
    const lathe_desc *q = lathe__in(p, 0), *k = lathe__in(p, 1), *v = lathe__in(p, 2);
    const int64_t h = a->n_heads, kv = a->n_kv_heads, d = a->head_dim, dv = value_dim(a);
    const int64_t width = a->fused_qkv ? (h + 2 * kv) * d : h * d;
    if (!q || h < 1 || kv < 1 || h % kv || d < 1 || a->batch < 1 || q->rank != 2 ||
        q->dims[1] != width || q->dims[0] % a->batch || (!a->fused_qkv && (!k || !v)) ||
        a->value_dim < 0 || (a->fused_qkv && dv != d))
        return lathe__bad_inputs(p, "q c[N,H*D] (or fused c[N,(H+2Hkv)*D] without value_dim), k "
                                    "and v, H a multiple of Hkv");
    const lathe_desc *len = lathe__in(p, 4);
    const int in_blocks = len && len->rank == 2;
    if (in_blocks && (k->rank != 3 || len->dims[0] != a->batch || len->dims[1] < 2))
        return lathe__bad_inputs(p, "with kv_len i32[B,1+n], k and v [blocks,tokens,..]");
    if (!a->fused_qkv &&
        (lathe__last_dim(k) != kv * d || lathe__last_dim(v) != kv * dv || k->dtype != q->dtype ||
         v->dtype != q->dtype || lathe_desc_count(k) / d != lathe_desc_count(v) / dv ||
         (!in_blocks && (lathe_desc_count(k) / (kv * d)) % a->batch)))
        return lathe__bad_inputs(p, "k c[M,Hkv*D] and v c[M,Hkv*Dv] like q");
    if (lathe__in(p, 6) && !lathe__is_vector(lathe__in(p, 6), h))
        return lathe__bad_inputs(p, "slopes f32[H]");
    if (lathe__in(p, 7) && !lathe__is_vector(lathe__in(p, 7), h))
        return lathe__bad_inputs(p, "sinks f32[H]");
    p->out[0] = lathe_desc_2d(q->dtype, q->dims[0], h * dv);
    p->out[1] = lathe_desc_1d(LATHE_F32, q->dims[0] * h);
    p->out[1].rank = 3;
    p->out[1].dims[0] = a->batch;
    p->out[1].dims[1] = h;
    p->out[1].dims[2] = q->dims[0] / a->batch;
    return LATHE_OK;
}

static lathe_status infer_attention_backward(lathe_op_problem *p)
{
    if (!lathe__in(p, 0) || !lathe__in(p, 1) || !lathe__in(p, 4) || !lathe__in(p, 5) ||
        !lathe__same_shape(lathe__in(p, 0), lathe__in(p, 4)))
        return lathe__bad_inputs(p, "do like o, q, k, v, o, lse");
    p->out[0] = *lathe__in(p, 1);
    if (!p->attrs.fused_qkv) {
        p->out[1] = *lathe__in(p, 2);
        p->out[2] = *lathe__in(p, 3);
    }
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    if (n->in[4] != LATHE_NONE) {
        t->status = lathe_error(LATHE_E_UNSUPPORTED,
                                "attention '%s' reads a KV cache: it has no derivative", n->label);
        return;
    }
    const lathe_val in[10] = {dy,        n->in[0], n->in[1], n->in[2], n->out[0],
                              n->out[1], n->in[3], n->in[5], n->in[6], n->in[7]};
    const lathe_val of_sinks[4] = {dy, n->out[0], n->out[1], n->in[7]};
    lathe_op_attrs of_values = n->attrs; /* reads o alone */
    of_values.head_dim = (int32_t)value_dim(&n->attrs);
    lathe__emit(t, LATHE_OP_ATTENTION_BWD, &n->attrs, in, 10, n->in, 7, 3, n->label);
    if (n->in[7] != LATHE_NONE && lathe__needs(t, n->in[7]))
        lathe__emit(t, LATHE_OP_ATTENTION_SINKS_BWD, &of_values, of_sinks, 4, &n->in[7], 0, 1,
                    n->label);
}

/* Two products in the forward (queries by keys, weights by values), four in the backward, one half
 * of them with heads of q and k and the other with heads of v. */
static double flops(const lathe_op_problem *p)
{
    const lathe_op_attrs *a = &p->attrs;
    const int64_t t = a->batch > 0 ? p->in[0].dims[0] / a->batch : 0;
    return (p->op == LATHE_OP_ATTENTION ? 2.0 : 4.0) * (double)a->batch *
           lathe_attention_pairs(t, a->window, a->causal) * a->n_heads *
           (double)(a->head_dim + value_dim(a));
}

typedef struct attention_memory {
    int32_t *doc_start, *kv_len, *key_end;
    const double *slopes, *sinks;
    double *q, *k, *v, *dq, *dk, *dv, *o, *lse, *row;
} attention_memory;

static int32_t *whole_numbers(const double *x, int64_t n)
{
    int32_t *out = x != NULL ? malloc((size_t)n * sizeof *out) : NULL;
    for (int64_t i = 0; out != NULL && i < n; i++)
        out[i] = (int32_t)x[i];
    return out;
}

/* Copies columns [from, from + width) of x [n, stride] to `dense`, or back. */
static void copy_columns(double *x, int64_t n, int64_t stride, int64_t from, int64_t width,
                         double *dense, int back)
{
    for (int64_t i = 0; i < n * width; i++) {
        double *cell = x + i / width * stride + from + i % width;
        if (back)
            *cell = dense[i];
        else
            dense[i] = *cell;
    }
}

static lathe_attention_problem attention_problem(const lathe_op_problem *p, int first)
{
    const lathe_op_attrs *a = &p->attrs;
    const int64_t q_width = (int64_t)a->n_heads * a->head_dim;
    const int64_t kv_width = (int64_t)a->n_kv_heads * a->head_dim;
    const int64_t stride = a->fused_qkv ? q_width + 2 * kv_width : q_width;
    const int64_t n = lathe_desc_count(&p->in[first]) / stride;
    const int64_t m = a->fused_qkv ? n : lathe_desc_count(&p->in[first + 1]) / kv_width;
    const lathe_desc *len = first == 0 ? lathe__in(p, 4) : NULL;
    const int64_t block = len && len->rank == 2 ? p->in[1].dims[1] : 0;
    return (lathe_attention_problem){.size = sizeof(lathe_attention_problem),
                                     .batch = a->batch,
                                     .t_q = n / a->batch,
                                     .t_k = block > 0 ? (len->dims[1] - 1) * block : m / a->batch,
                                     .block_tokens = block,
                                     .kv_stride = block > 0 ? len->dims[1] : 1,
                                     .n_heads = a->n_heads,
                                     .n_kv_heads = a->n_kv_heads,
                                     .head_dim = a->head_dim,
                                     .value_dim = (int32_t)value_dim(a),
                                     .causal = a->causal,
                                     .window = a->window,
                                     .scale = a->scale,
                                     .softcap = a->softcap};
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int back = p->op == LATHE_OP_ATTENTION_BWD, first = back ? 1 : 0;
    const lathe_attention_problem t = attention_problem(p, first);
    const int64_t n = t.batch * t.t_q;
    const int64_t m = t.block_tokens > 0 ? p->in[1].dims[0] * t.block_tokens : t.batch * t.t_k;
    const int64_t qw = (int64_t)t.n_heads * t.head_dim, kw = (int64_t)t.n_kv_heads * t.head_dim;
    const int64_t ow = (int64_t)t.n_heads * t.value_dim, vw = (int64_t)t.n_kv_heads * t.value_dim;
    const int64_t stride = qw + 2 * kw;
    const int64_t total = n * (2 * qw + ow) + 2 * m * (kw + vw) + n * t.n_heads + 2 * t.t_k;
    double *memory = calloc((size_t)total, sizeof *memory), *next = memory;
    if (memory == NULL)
        return;
    attention_memory x = {.q = next, .dq = next + n * qw, .o = next + 2 * n * qw};
    next += n * (2 * qw + ow);
    x.k = next, x.dk = next + m * kw, x.v = next + 2 * m * kw, x.dv = next + m * (2 * kw + vw);
    next += 2 * m * (kw + vw);
    x.lse = next, x.row = next + n * t.n_heads;
    if (p->attrs.fused_qkv) {
        copy_columns(in[first], n, stride, 0, qw, x.q, 0);
        copy_columns(in[first], n, stride, qw, kw, x.k, 0);
        copy_columns(in[first], n, stride, qw + kw, kw, x.v, 0);
    } else {
        memcpy(x.q, in[first], (size_t)(n * qw) * sizeof *x.q);
        memcpy(x.k, in[first + 1], (size_t)(m * kw) * sizeof *x.k);
        memcpy(x.v, in[first + 2], (size_t)(m * vw) * sizeof *x.v);
    }
    x.doc_start = whole_numbers(in[back ? 6 : 3], n);
    x.key_end = whole_numbers(in[back ? 7 : 5], n);
    x.slopes = lathe__in(p, back ? 8 : 6) ? in[back ? 8 : 6] : NULL;
    x.sinks = lathe__in(p, back ? 9 : 7) ? in[back ? 9 : 7] : NULL;
    x.kv_len = back ? NULL : whole_numbers(in[4], t.batch * t.kv_stride);
    const lathe__dense_attention dense = {.q = x.q,
                                          .k = x.k,
                                          .v = x.v,
                                          .d_o = back ? in[0] : NULL,
                                          .doc_start = x.doc_start,
                                          .kv_len = x.kv_len,
                                          .key_end = x.key_end,
                                          .slopes = x.slopes,
                                          .sinks = x.sinks,
                                          .o = x.o,
                                          .lse = x.lse,
                                          .dq = back ? x.dq : NULL,
                                          .dk = x.dk,
                                          .dv = x.dv,
                                          .row = x.row};
    lathe__attention_dense(&t, &dense);
    if (!back) {
        memcpy(out[0], x.o, (size_t)(n * ow) * sizeof *x.o);
        memcpy(out[1], x.lse, (size_t)(n * t.n_heads) * sizeof *x.lse);
    } else if (p->attrs.fused_qkv) {
        copy_columns(out[0], n, stride, 0, qw, x.dq, 1);
        copy_columns(out[0], n, stride, qw, kw, x.dk, 1);
        copy_columns(out[0], n, stride, qw + kw, kw, x.dv, 1);
    } else {
        memcpy(out[0], x.dq, (size_t)(n * qw) * sizeof *x.dq);
        memcpy(out[1], x.dk, (size_t)(m * kw) * sizeof *x.dk);
        memcpy(out[2], x.dv, (size_t)(m * vw) * sizeof *x.dv);
    }
    free(x.doc_start);
    free(x.kv_len);
    free(x.key_end);
    free(memory);
}

#define HEADS .n_heads = 4, .n_kv_heads = 2, .head_dim = 6, .batch = 2, .scale = 0.4f

static const lathe_op_case forward_cases[] = {
    LATHE_CASE_WITH("c[14,24] c[14,12] c[14,12] - -", "c[14,24] f32[2,4,7]", 40, 8, HEADS,
                    .causal = 1),
    LATHE_CASE_WITH("c[14,48] - - - -", "c[14,24] f32[2,4,7]", 40, 8, HEADS, .causal = 1,
                    .fused_qkv = 1, .window = 3, .softcap = 2.0f),
    LATHE_CASE_WITH("c[14,24] c[14,12] c[14,12] - - i32[14]:k", "c[14,24] f32[2,4,7]", 40, 8,
                    HEADS),
    LATHE_CASE_WITH("c[14,24] c[14,12] c[14,12] - - - f32[4]:+", "c[14,24] f32[2,4,7]", 40, 8,
                    HEADS, .causal = 1, .softcap = 2.0f),
    LATHE_CASE_WITH("c[14,24] c[14,12] c[14,12] - - - - f32[4]:2", "c[14,24] f32[2,4,7]", 40, 8,
                    HEADS, .causal = 1, .window = 3),
    LATHE_CASE_WITH("c[14,24] c[14,12] c[14,8] - - - - f32[4]:2", "c[14,16] f32[2,4,7]", 40, 8,
                    HEADS, .value_dim = 4, .causal = 1),
    LATHE_CASE_WITH("c[14,24] c[14,12] c[14,20]", "c[14,40] f32[2,4,7]", 40, 8, HEADS,
                    .value_dim = 10),
    LATHE_LAST_CASE,
};

static const lathe_op_case backward_cases[] = {
    LATHE_CASE_WITH("c[14,24] c[14,24] c[14,12] c[14,12] c[14,24] f32[2,4,7] -",
                    "c[14,24] c[14,12] c[14,12]", 60, 16, HEADS, .causal = 1),
    LATHE_CASE_WITH("c[14,24] c[14,24] c[14,12] c[14,12] c[14,24] f32[2,4,7] i32[14]:t1 i32[14]:k",
                    "c[14,24] c[14,12] c[14,12]", 60, 16, HEADS),
    LATHE_CASE_WITH("c[14,24] c[14,24] c[14,12] c[14,12] c[14,24] f32[2,4,7] i32[14]:t1 - f32[4]:+",
                    "c[14,24] c[14,12] c[14,12]", 60, 16, HEADS, .causal = 1, .softcap = 2.0f),
    LATHE_CASE_WITH("c[14,24] c[14,24] c[14,12] c[14,12] c[14,24] f32[2,4,7] i32[14]:t1 - - "
                    "f32[4]:2",
                    "c[14,24] c[14,12] c[14,12]", 60, 16, HEADS, .causal = 1),
    LATHE_CASE_WITH("c[14,16] c[14,24] c[14,12] c[14,8] c[14,16] f32[2,4,7]",
                    "c[14,24] c[14,12] c[14,8]", 60, 16, HEADS, .value_dim = 4, .causal = 1),
    LATHE_LAST_CASE,
};

/* slopes have no derivative */
LATHE_OP_DEFINE(ATTENTION, .runs_on = LATHE_RUNS_ATTENTION, .fixed_inputs = 1u << 6,
                .infer = infer_attention, .derive = derive, .flops = flops, .exact = exact,
                .cases = forward_cases);
LATHE_OP_DEFINE(ATTENTION_BWD, .runs_on = LATHE_RUNS_ATTENTION, .accumulates = 1,
                .infer = infer_attention_backward, .flops = flops, .exact = exact,
                .cases = backward_cases);

/* ---- the gradient of the sinks ---- */

static int fits_sinks(const lathe_op_problem *p)
{
    const lathe_op_attrs *a = &p->attrs;
    const lathe_desc *o = lathe__in(p, 1), *lse = lathe__in(p, 2);
    return o != NULL && lse != NULL && lathe__in(p, 0) != NULL && lathe__in(p, 3) != NULL &&
           o->rank == 2 && lathe__computes(o->dtype) && a->n_heads > 0 && a->head_dim > 0 &&
           a->batch > 0 && o->dims[1] == (int64_t)a->n_heads * a->head_dim &&
           o->dims[0] % a->batch == 0 && p->in[0].dtype == o->dtype &&
           lathe__same_shape(&p->in[0], o) && lse->dtype == LATHE_F32 &&
           lathe_desc_count(lse) == o->dims[0] * a->n_heads &&
           lathe__is_vector(&p->in[3], a->n_heads);
}

static lathe_status infer_sinks_backward(lathe_op_problem *p)
{
    if (!fits_sinks(p))
        return lathe__bad_inputs(p, "do and o c[N,H*D], lse f32[B,H,Tq], sinks f32[H]");
    p->out[0] = p->in[3];
    return LATHE_OK;
}

static lathe_status check_sinks_backward(const lathe_op_problem *p)
{
    if (!fits_sinks(p))
        return lathe__refuse_shape(p, "it must have do and o [N,H*D], lse [B,H,Tq], sinks [H]");
    return lathe__check_out(p, 0, LATHE_F32, p->attrs.n_heads);
}

static void exact_sinks_backward(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t heads = p->attrs.n_heads, size = p->attrs.head_dim;
    const int64_t tokens = p->in[1].dims[0], t_q = tokens / p->attrs.batch;
    for (int64_t i = 0; i < tokens * heads; i++) {
        const int64_t h = i / t_q % heads, n = i / t_q / heads * t_q + i % t_q; /* i: of lse */
        for (int64_t d = 0; d < size; d++)
            out[0][h] -= exp(in[3][h] - in[2][i]) * in[0][(n * heads + h) * size + d] *
                         in[1][(n * heads + h) * size + d];
    }
}

static const lathe_op_case sinks_backward_cases[] = {
    LATHE_CASE_WITH("c[14,24] c[14,24] f32[2,4,7]:+ f32[4]:2", "f32[4]", 60, 8, HEADS),
    LATHE_CASE_WITH("c[300,24] c[300,24] f32[2,4,150]:+ f32[4]:2", "f32[4]", 200, 8, HEADS),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(ATTENTION_SINKS_BWD, .accumulates = 1, .param_outputs = 1,
                .infer = infer_sinks_backward, .check = check_sinks_backward,
                .exact = exact_sinks_backward, .cases = sinks_backward_cases);

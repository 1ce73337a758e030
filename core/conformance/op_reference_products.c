/* Matrix products, the head over the vocabulary, and attention. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/attention_reference.h"
#include "conformance/op_reference.h"
#include "lathe/fp8.h"
#include "lathe/rng.h"

/* ---- linear sites ---- */

/* The factor of row r of x [rows, cols] in an fp8 recipe. */
static float fp8_factor(const double *x, int64_t rows, int64_t cols, int64_t r, int32_t recipe)
{
    const int64_t first = recipe == LATHE_FP8_ROWWISE ? r * cols : 0;
    const int64_t n = recipe == LATHE_FP8_ROWWISE ? cols : rows * cols;
    double most = 0.0;
    for (int64_t i = first; i < first + n; i++)
        most = fmax(most, fabs(x[i]));
    return lathe_fp8_scale((float)most, LATHE_F8_E4M3, recipe);
}

static double through_fp8(double x, float factor, int32_t recipe)
{
    if (recipe == 0)
        return x;
    return (double)lathe_e4m3_to_f32(lathe_f32_to_e4m3((float)x * factor)) / (double)factor;
}

static void linear(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int64_t o = p->in[1].dims[0], k = p->in[1].dims[1], n = lathe_desc_count(&p->in[0]) / k;
    const int32_t recipe = p->attrs.fp8;
    for (int64_t i = 0; i < n; i++) {
        const float x = recipe != 0 ? fp8_factor(in[0], n, k, i, recipe) : 1.0f;
        for (int64_t j = 0; j < o; j++) {
            const float w = recipe != 0 ? fp8_factor(in[1], o, k, j, recipe) : 1.0f;
            double total = in[2] != NULL ? in[2][j] : 0.0;
            for (int64_t e = 0; e < k; e++)
                total += through_fp8(in[0][i * k + e], x, recipe) *
                         through_fp8(in[1][j * k + e], w, recipe);
            out[0][i * o + j] = total;
        }
    }
}

static void linear_gelu(const lathe__op_problem *p, double *const *in, double *const *out)
{
    linear(p, in, out);
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++) {
        const double z = lathe__op_round(out[0][i], p->in[0].dtype);
        if (out[1] != NULL)
            out[1][i] = z;
        out[0][i] = lathe__gelu(z);
    }
}

static void linear_dx(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int64_t o = p->in[1].dims[0], k = p->in[1].dims[1], n = lathe_desc_count(&p->in[0]) / o;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < o; j++)
            for (int64_t e = 0; e < k; e++)
                out[0][i * k + e] += in[0][i * o + j] * in[1][j * k + e];
    for (int64_t i = 0; p->op == LATHE_OP_LINEAR_DX_GELU && i < n * k; i++)
        out[0][i] = lathe__op_round(out[0][i], p->in[0].dtype) * lathe__gelu_slope(in[2][i]);
}

static void linear_dw(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = p->in[0].dims[0], o = p->in[0].dims[1], k = p->in[1].dims[1];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < o; j++) {
            if (out[1] != NULL)
                out[1][j] += in[0][i * o + j];
            for (int64_t e = 0; e < k; e++)
                out[0][j * k + e] += in[0][i * o + j] * in[1][i * k + e];
        }
}

static void matmul(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int ta = p->attrs.trans_a, tb = p->attrs.trans_b;
    const int64_t m = p->out[0].dims[0], n = p->out[0].dims[1], terms = p->in[0].dims[ta ? 0 : 1];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < terms; k++)
                out[0][i * n + j] += p->attrs.alpha * in[0][ta ? k * m + i : i * terms + k] *
                                     in[1][tb ? j * terms + k : k * n + j];
}

/* ---- the head ---- */

/* Row r's logits, [V], and log(sum(exp)). */
static double logits_of(const lathe__op_problem *p, double *const *in, int64_t r, double *logits)
{
    const int64_t width = p->in[1].dims[1], vocabulary = p->in[1].dims[0];
    const double cap = (double)p->attrs.softcap;
    double top = -HUGE_VAL, sum = 0.0;
    for (int64_t v = 0; v < vocabulary; v++) {
        double x = 0.0;
        for (int64_t i = 0; i < width; i++)
            x += in[0][r * width + i] * in[1][v * width + i];
        logits[v] = cap > 0.0 ? cap * tanh(x / cap) : x;
        top = fmax(top, logits[v]);
    }
    for (int64_t v = 0; v < vocabulary; v++)
        sum += exp(logits[v] - top);
    return top + log(sum);
}

static void head_backward_row(const lathe__op_problem *p, double *const *in, double *const *out,
                              int64_t r, const double *logits, double lse)
{
    const int64_t width = p->in[1].dims[1], vocabulary = p->in[1].dims[0];
    const double cap = (double)p->attrs.softcap;
    for (int64_t v = 0; v < vocabulary; v++) {
        const double slope = cap > 0.0 ? 1.0 - (logits[v] / cap) * (logits[v] / cap) : 1.0;
        const double hit = v == (int64_t)in[2][r] ? 1.0 : 0.0;
        const double g = in[3][r] * (hit - exp(logits[v] - lse)) * slope;
        for (int64_t i = 0; i < width; i++) {
            out[1][r * width + i] += g * in[1][v * width + i];
            if (out[2] != NULL)
                out[2][v * width + i] += g * in[0][r * width + i];
        }
    }
}

static void evaluate_row(double *const *out, int64_t r, const double *logits, double lse,
                         int64_t vocabulary)
{
    double most = -INFINITY;
    int64_t top = 0;
    for (int64_t v = 0; v < vocabulary; v++) {
        top = logits[v] > most ? v : top;
        most = logits[v] > most ? logits[v] : most;
    }
    out[1][r] = most - lse;
    out[2][r] = (double)top;
}

static double sampled(const lathe__op_problem *p, double *const *in, int64_t r,
                      const double *logits, double lse)
{
    const lathe_u32x4 w =
        lathe_rng_block((uint64_t)in[3][0], (uint64_t)in[3][1], p->attrs.rng_stream, (uint64_t)r);
    const double u = lathe_uniform_f64(w.v[0], w.v[1]);
    double upto = 0.0;
    int64_t token = -1;
    for (int64_t v = 0; v < p->in[1].dims[0]; v++) {
        token = upto <= u ? v : token;
        upto += exp(logits[v] - lse);
    }
    return (double)token;
}

static void head(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = lathe_desc_count(&p->in[2]), vocabulary = p->in[1].dims[0];
    double *logits = malloc((size_t)vocabulary * sizeof *logits);
    for (int64_t r = 0; logits != NULL && r < n; r++) {
        const int ignored = in[2][r] < 0.0;
        const double lse = logits_of(p, in, r, logits);
        if (p->op == LATHE_OP_HEAD_SAMPLE) {
            out[0][r] = ignored ? -1.0 : sampled(p, in, r, logits, lse);
            continue;
        }
        out[0][r] = ignored ? 0.0 : logits[(int64_t)in[2][r]] - lse;
        if (p->op == LATHE_OP_HEAD_EVAL && ignored)
            out[2][r] = -1.0;
        else if (p->op == LATHE_OP_HEAD_EVAL)
            evaluate_row(out, r, logits, lse, vocabulary);
        else if (p->op == LATHE_OP_HEAD_LOGPROB_BWD && !ignored)
            head_backward_row(p, in, out, r, logits, lse);
    }
    free(logits);
}

/* ---- attention ---- */

typedef struct attention_memory {
    int32_t *doc_start, *kv_len;
    double *q, *k, *v, *dq, *dk, *dv, *o, *lse, *row;
} attention_memory;

static int32_t *whole_numbers(const double *x, int64_t n)
{
    int32_t *out = x != NULL ? malloc((size_t)n * sizeof *out) : NULL;
    for (int64_t i = 0; out != NULL && i < n; i++)
        out[i] = (int32_t)x[i];
    return out;
}

/* Columns [from, from + width) of x [n, stride], or back into them. */
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

static lathe_attention_problem attention_problem(const lathe__op_problem *p, int first)
{
    const lathe_op_attrs *a = &p->attrs;
    const int64_t q_width = (int64_t)a->n_heads * a->head_dim;
    const int64_t kv_width = (int64_t)a->n_kv_heads * a->head_dim;
    const int64_t stride = a->fused_qkv ? q_width + 2 * kv_width : q_width;
    const int64_t n = lathe_desc_count(&p->in[first]) / stride;
    const int64_t m = a->fused_qkv ? n : lathe_desc_count(&p->in[first + 1]) / kv_width;
    return (lathe_attention_problem){.size = sizeof(lathe_attention_problem),
                                     .batch = a->batch,
                                     .t_q = n / a->batch,
                                     .t_k = m / a->batch,
                                     .n_heads = a->n_heads,
                                     .n_kv_heads = a->n_kv_heads,
                                     .head_dim = a->head_dim,
                                     .causal = a->causal,
                                     .window = a->window,
                                     .scale = a->scale,
                                     .softcap = a->softcap};
}

static void attention(const lathe__op_problem *p, double *const *in, double *const *out)
{
    const int back = p->op == LATHE_OP_ATTENTION_BWD, first = back ? 1 : 0;
    const lathe_attention_problem t = attention_problem(p, first);
    const int64_t n = t.batch * t.t_q, m = t.batch * t.t_k;
    const int64_t qw = (int64_t)t.n_heads * t.head_dim, kw = (int64_t)t.n_kv_heads * t.head_dim;
    const int64_t stride = qw + 2 * kw, total = 3 * n * qw + 4 * m * kw + n * t.n_heads + 2 * t.t_k;
    double *memory = calloc((size_t)total, sizeof *memory), *next = memory;
    if (memory == NULL)
        return;
    attention_memory x = {.q = next, .dq = next + n * qw, .o = next + 2 * n * qw};
    next += 3 * n * qw;
    x.k = next, x.v = next + m * kw, x.dk = next + 2 * m * kw, x.dv = next + 3 * m * kw;
    next += 4 * m * kw;
    x.lse = next, x.row = next + n * t.n_heads;
    if (p->attrs.fused_qkv) {
        copy_columns(in[first], n, stride, 0, qw, x.q, 0);
        copy_columns(in[first], n, stride, qw, kw, x.k, 0);
        copy_columns(in[first], n, stride, qw + kw, kw, x.v, 0);
    } else {
        memcpy(x.q, in[first], (size_t)(n * qw) * sizeof *x.q);
        memcpy(x.k, in[first + 1], (size_t)(m * kw) * sizeof *x.k);
        memcpy(x.v, in[first + 2], (size_t)(m * kw) * sizeof *x.v);
    }
    x.doc_start = whole_numbers(in[back ? 6 : 3], n);
    x.kv_len = back ? NULL : whole_numbers(in[4], t.batch);
    const lathe__dense_attention dense = {.q = x.q,
                                          .k = x.k,
                                          .v = x.v,
                                          .d_o = back ? in[0] : NULL,
                                          .doc_start = x.doc_start,
                                          .kv_len = x.kv_len,
                                          .o = x.o,
                                          .lse = x.lse,
                                          .dq = back ? x.dq : NULL,
                                          .dk = x.dk,
                                          .dv = x.dv,
                                          .row = x.row};
    lathe__attention_dense(&t, &dense);
    if (!back) {
        memcpy(out[0], x.o, (size_t)(n * qw) * sizeof *x.o);
        memcpy(out[1], x.lse, (size_t)(n * t.n_heads) * sizeof *x.lse);
    } else if (p->attrs.fused_qkv) {
        copy_columns(out[0], n, stride, 0, qw, x.dq, 1);
        copy_columns(out[0], n, stride, qw, kw, x.dk, 1);
        copy_columns(out[0], n, stride, qw + kw, kw, x.dv, 1);
    } else {
        memcpy(out[0], x.dq, (size_t)(n * qw) * sizeof *x.dq);
        memcpy(out[1], x.dk, (size_t)(m * kw) * sizeof *x.dk);
        memcpy(out[2], x.dv, (size_t)(m * kw) * sizeof *x.dv);
    }
    free(x.doc_start);
    free(x.kv_len);
    free(memory);
}

lathe__op_function lathe__op_products(int32_t op)
{
    switch (op) {
    case LATHE_OP_LINEAR:
        return linear;
    case LATHE_OP_LINEAR_GELU:
        return linear_gelu;
    case LATHE_OP_LINEAR_DX:
    case LATHE_OP_LINEAR_DX_GELU:
        return linear_dx;
    case LATHE_OP_LINEAR_DW:
        return linear_dw;
    case LATHE_OP_MATMUL:
        return matmul;
    case LATHE_OP_HEAD_LOGPROB:
    case LATHE_OP_HEAD_LOGPROB_BWD:
    case LATHE_OP_HEAD_EVAL:
    case LATHE_OP_HEAD_SAMPLE:
        return head;
    case LATHE_OP_ATTENTION:
    case LATHE_OP_ATTENTION_BWD:
        return attention;
    default:
        return NULL;
    }
}

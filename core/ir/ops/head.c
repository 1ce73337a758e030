/* The head over the vocabulary: HEAD_LOGPROB, HEAD_ENTROPY, their derivatives, HEAD_EVAL,
 * HEAD_SAMPLE. Each may have two more inputs, u [N,R] and v [V,R], which add u v^T to the logits,
 * and with these a third one, s f32[V], by which the columns of the sum are multiplied. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "ir/ops/rules.h"
#include "lathe/rng.h"

static int32_t is_backward(const lathe_op_problem *p)
{
    return p->op == LATHE_OP_HEAD_LOGPROB_BWD || p->op == LATHE_OP_HEAD_ENTROPY_BWD;
}

/* The input u; v and s are the next ones. */
static int32_t input_u(int32_t op)
{
    return op == LATHE_OP_HEAD_LOGPROB_BWD || op == LATHE_OP_HEAD_ENTROPY_BWD ||
                   op == LATHE_OP_HEAD_SAMPLE
               ? 4
               : 3;
}

/* Checks u and v, if they are there, and the shapes of their gradients. */
static lathe_status infer_more(lathe_op_problem *p)
{
    const int32_t k = input_u(p->op);
    const lathe_desc *x = lathe__in(p, 0), *u = lathe__in(p, k), *v = lathe__in(p, k + 1);
    const lathe_desc *s = lathe__in(p, k + 2);
    if (!u && !v && !s)
        return LATHE_OK;
    if (!u || !v || u->rank != 2 || v->rank != 2 || u->dims[1] != v->dims[1] ||
        u->dtype != x->dtype || v->dtype != x->dtype || u->dims[0] != x->dims[0] ||
        v->dims[0] != p->in[1].dims[0])
        return lathe__bad_inputs(p, "u c[N,R] and v c[V,R] beside x, W and targets");
    if (s && !lathe__is_vector(s, p->in[1].dims[0]))
        return lathe__bad_inputs(p, "s f32[V] beside u and v");
    if (is_backward(p)) {
        p->out[2] = lathe__with_dtype(*v, LATHE_F32);
        p->out[3] = *u;
        if (s)
            p->out[4] = *s;
    }
    return LATHE_OK;
}

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0), *w = lathe__in(p, 1), *t = lathe__in(p, 2);
    if (!x || !w || !t || x->rank != 2 || w->rank != 2 || x->dims[1] != w->dims[1] ||
        x->dtype != w->dtype || t->dtype != LATHE_I32 || lathe_desc_count(t) != x->dims[0])
        return lathe__bad_inputs(p, "x c[N,C], W c[V,C], targets i32[N]");
    p->out[0] = lathe_desc_1d(LATHE_F32, x->dims[0]);
    if (is_backward(p)) {
        if (!lathe__in(p, 3) || !lathe__is_vector(lathe__in(p, 3), x->dims[0]))
            return lathe__bad_inputs(p, "the gradient f32[N] beside x, W and targets");
        p->out[1] = *x;
        p->out[2] = lathe__with_dtype(*w, LATHE_F32);
    }
    if (p->op == LATHE_OP_HEAD_EVAL) {
        p->out[1] = p->out[0];
        p->out[2] = lathe__with_dtype(p->out[0], LATHE_I32);
    }
    if (p->op == LATHE_OP_HEAD_SAMPLE) {
        if (!lathe__in(p, 3) || p->in[3].dtype != LATHE_I64 ||
            lathe_desc_count(lathe__in(p, 3)) != LATHE_RNG_COUNTER)
            return lathe__bad_inputs(p, "rng i64[5] beside x, W and targets");
        p->out[0] = lathe__with_dtype(p->out[0], LATHE_I32);
    }
    return infer_more(p);
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val u = n->in[3], v = n->in[4], s = n->in[5];
    const lathe_val in[7] = {n->in[0], n->in[1], n->in[2], dy, u, v, s};
    const lathe_val targets[5] = {n->out[0], n->in[0], u == LATHE_NONE ? n->in[1] : v, u, s};
    const int32_t op =
        n->op == LATHE_OP_HEAD_LOGPROB ? LATHE_OP_HEAD_LOGPROB_BWD : LATHE_OP_HEAD_ENTROPY_BWD;
    if (u != LATHE_NONE && lathe__needs(t, n->in[1]) && t->status == LATHE_OK)
        t->status = lathe_error(LATHE_E_UNSUPPORTED,
                                "the head's weight trains, and an adapter adds to the head too: "
                                "train one of the two");
    /* output 0 repeats the forward's result; it is not a gradient */
    t->g->values[n->out[0]].needs_grad = 0;
    lathe__emit(t, op, &n->attrs, in, 7, targets, 3, 5, n->label);
    t->g->values[n->out[0]].needs_grad = 1;
}

/* Of u v^T. */
static double flops_more(const lathe_op_problem *p)
{
    const lathe_desc *u = lathe__in(p, input_u(p->op));
    return u ? 2.0 * (double)lathe_desc_count(u) * (double)p->in[1].dims[0] : 0.0;
}

static double flops(const lathe_op_problem *p)
{
    return 2.0 * (double)lathe_desc_count(&p->in[0]) * (double)p->in[1].dims[0] + flops_more(p);
}

/* Computes the logits again, dx, and dW if wanted; with u and v, their gradients instead of dW. */
static double flops_bwd(const lathe_op_problem *p)
{
    const double more = flops_more(p), products = more > 0.0 || !lathe__out(p, 2) ? 2.0 : 3.0;
    return products * 2.0 * (double)lathe_desc_count(&p->in[0]) * (double)p->in[1].dims[0] +
           more * (1.0 + (lathe__out(p, 2) ? 1.0 : 0.0) + (lathe__out(p, 3) ? 1.0 : 0.0));
}

/* Checks u, v and s; *out_r: the columns of u and v, 0 if they are not there. */
static lathe_status check_more(const lathe_op_problem *p, int64_t *out_r)
{
    const int32_t k = input_u(p->op);
    *out_r = 0;
    if (!lathe__in(p, k) && !lathe__in(p, k + 1) && !lathe__in(p, k + 2))
        return LATHE_OK;
    if (!lathe__in(p, k) || !lathe__in(p, k + 1) || p->in[k + 1].rank != 2 ||
        p->in[k + 1].dims[1] < 1 || p->in[k + 1].dims[0] != p->in[1].dims[0])
        return lathe__refuse_shape(p, "u must be [N, R] and v [V, R]");
    *out_r = p->in[k + 1].dims[1];
    LATHE_TRY(lathe__check_in(p, k, p->in[0].dtype, lathe_desc_count(&p->in[2]) * *out_r));
    if (lathe__in(p, k + 2))
        LATHE_TRY(lathe__check_in(p, k + 2, LATHE_F32, p->in[1].dims[0]));
    return lathe__check_in(p, k + 1, p->in[0].dtype, p->in[1].dims[0] * *out_r);
}

static lathe_status check(const lathe_op_problem *p)
{
    if (p->in[1].rank != 2 || lathe_desc_count(&p->in[1]) < 1)
        return lathe__refuse_shape(p, "W must be [V, C], both at least 1");
    const int64_t n = lathe_desc_count(&p->in[2]), v = p->in[1].dims[0], c = p->in[1].dims[1];
    const int32_t dtype = p->in[0].dtype;
    int64_t r = 0;
    if (n < 1)
        return lathe__refuse_shape(p, "there must be at least one row");
    LATHE_TRY(check_more(p, &r));
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n * c));
    LATHE_TRY(lathe__check_in(p, 1, dtype, v * c));
    LATHE_TRY(lathe__check_in(p, 2, LATHE_I32, n));
    if (p->op == LATHE_OP_HEAD_SAMPLE) {
        LATHE_TRY(lathe__check_in(p, 3, LATHE_I64, LATHE_RNG_COUNTER));
        return lathe__check_out(p, 0, LATHE_I32, n);
    }
    LATHE_TRY(lathe__check_out(p, 0, LATHE_F32, n));
    if (p->op == LATHE_OP_HEAD_EVAL) {
        LATHE_TRY(lathe__check_out(p, 1, LATHE_F32, n));
        LATHE_TRY(lathe__check_out(p, 2, LATHE_I32, n));
    }
    if (!is_backward(p))
        return LATHE_OK;
    LATHE_TRY(lathe__check_in(p, 3, LATHE_F32, n));
    if (lathe__out(p, 1))
        LATHE_TRY(lathe__check_out(p, 1, dtype, n * c));
    if (lathe__out(p, 3) && r == 0)
        return lathe__refuse_shape(p, "there is a gradient of u, and no u");
    if (lathe__out(p, 3))
        LATHE_TRY(lathe__check_out(p, 3, dtype, n * r));
    if (lathe__out(p, 4) && !lathe__in(p, 6))
        return lathe__refuse_shape(p, "there is a gradient of s, and no s");
    if (lathe__out(p, 4))
        LATHE_TRY(lathe__check_out(p, 4, LATHE_F32, v));
    return lathe__out(p, 2) ? lathe__check_out(p, 2, LATHE_F32, v * (r > 0 ? r : c)) : LATHE_OK;
}

/* Logit v of row r before s and the cap. */
static double product(const lathe_op_problem *p, double *const *in, int64_t r, int64_t v)
{
    const int32_t u = input_u(p->op);
    const int64_t width = p->in[1].dims[1], rank = lathe__in(p, u) ? p->in[u].dims[1] : 0;
    double x = 0.0;
    for (int64_t i = 0; i < width; i++)
        x += in[0][r * width + i] * in[1][v * width + i];
    for (int64_t i = 0; i < rank; i++)
        x += in[u][r * rank + i] * in[u + 1][v * rank + i];
    return x;
}

/* Element v of s. */
static double factor(const lathe_op_problem *p, double *const *in, int64_t v)
{
    const int32_t s = input_u(p->op) + 2;
    return lathe__in(p, s) ? in[s][v] : 1.0;
}

/* Computes row r's logits, [V], and returns log(sum(exp)). */
static double logits_of(const lathe_op_problem *p, double *const *in, int64_t r, double *logits)
{
    const int64_t vocabulary = p->in[1].dims[0];
    const double cap = (double)p->attrs.softcap;
    double top = -HUGE_VAL, sum = 0.0;
    for (int64_t v = 0; v < vocabulary; v++) {
        const double x = factor(p, in, v) * product(p, in, r, v);
        logits[v] = cap > 0.0 ? cap * tanh(x / cap) : x;
        top = fmax(top, logits[v]);
    }
    for (int64_t v = 0; v < vocabulary; v++)
        sum += exp(logits[v] - top);
    return top + log(sum);
}

/* Adds the gradient g of row r's logit v to the outputs. */
static void add_gradient(const lathe_op_problem *p, double *const *in, double *const *out,
                         int64_t r, int64_t v, double g)
{
    const int32_t u = input_u(p->op);
    const int64_t width = p->in[1].dims[1], rank = lathe__in(p, u) ? p->in[u].dims[1] : 0;
    if (out[4] != NULL)
        out[4][v] += g * product(p, in, r, v);
    g *= factor(p, in, v);
    for (int64_t i = 0; i < width; i++) {
        out[1][r * width + i] += g * in[1][v * width + i];
        if (out[2] != NULL && rank == 0)
            out[2][v * width + i] += g * in[0][r * width + i];
    }
    for (int64_t i = 0; i < rank; i++) {
        if (out[2] != NULL)
            out[2][v * rank + i] += g * in[u][r * rank + i];
        if (out[3] != NULL)
            out[3][r * rank + i] += g * in[u + 1][v * rank + i];
    }
}

static void head_backward_row(const lathe_op_problem *p, double *const *in, double *const *out,
                              int64_t r, const double *logits, double lse)
{
    const int64_t vocabulary = p->in[1].dims[0];
    const double cap = (double)p->attrs.softcap;
    for (int64_t v = 0; v < vocabulary; v++) {
        const double slope = cap > 0.0 ? 1.0 - (logits[v] / cap) * (logits[v] / cap) : 1.0;
        const double hit = v == (int64_t)in[2][r] ? 1.0 : 0.0;
        add_gradient(p, in, out, r, v, in[3][r] * (hit - exp(logits[v] - lse)) * slope);
    }
}

/* H = -sum of p log p; d H / d s[v] = -p[v] (log p[v] + H) */
static void entropy_row(const lathe_op_problem *p, double *const *in, double *const *out, int64_t r,
                        const double *logits, double lse)
{
    const int64_t vocabulary = p->in[1].dims[0];
    const double cap = (double)p->attrs.softcap;
    double entropy = 0.0;
    for (int64_t v = 0; v < vocabulary; v++)
        entropy -= exp(logits[v] - lse) * (logits[v] - lse);
    out[0][r] = entropy;
    for (int64_t v = 0; is_backward(p) && v < vocabulary; v++) {
        const double slope = cap > 0.0 ? 1.0 - (logits[v] / cap) * (logits[v] / cap) : 1.0;
        const double logp = logits[v] - lse;
        add_gradient(p, in, out, r, v, -in[3][r] * exp(logp) * (logp + entropy) * slope);
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

static double sampled(const lathe_op_problem *p, double *const *in, int64_t r, const double *logits,
                      double lse)
{
    const int64_t row = lathe__random_index(in[3], lathe_desc_count(&p->in[2]), r);
    const lathe_u32x4 w =
        lathe_rng_block((uint64_t)in[3][0], (uint64_t)in[3][1], p->attrs.rng_stream, (uint64_t)row);
    const double u = lathe_uniform_f64(w.v[0], w.v[1]);
    double upto = 0.0;
    int64_t token = -1;
    for (int64_t v = 0; v < p->in[1].dims[0]; v++) {
        token = upto <= u ? v : token;
        upto += exp(logits[v] - lse);
    }
    return (double)token;
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
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
        if (p->op == LATHE_OP_HEAD_ENTROPY || p->op == LATHE_OP_HEAD_ENTROPY_BWD) {
            if (!ignored)
                entropy_row(p, in, out, r, logits, lse);
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

static const lathe_op_case logprob_cases[] = {
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13]:T37 c[13,3] c[37,3] f32[37]", "f32[13]", 48, 4,
                    .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[130,8] i32[3]:t130 c[3,2] c[130,2] f32[130]", "f32[3]", 130, 4,
                    .softcap = 2.0f),
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13]:T37", "f32[13]", 40, 4, .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[130,8] i32[3]:t130", "f32[3]", 130, 4, .softcap = 2.0f),
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13]:T37 c[13,3] c[37,3]", "f32[13]", 48, 4,
                    .chunk_rows = 4),
    LATHE_LAST_CASE,
};

static const lathe_op_case logprob_bwd_cases[] = {
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13]:T37 f32[13]", "f32[13] c[13,9] f32[37,9]", 64, 4,
                    .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[40,8] i32[3]:t40 f32[3]", "f32[3] c[3,8] -", 64, 4, .softcap = 2.0f),
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13]:T37 f32[13] c[13,3] c[37,3]",
                    "f32[13] c[13,9] f32[37,3] c[13,3]", 64, 4, .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[40,8] i32[3]:t40 f32[3] c[3,5] c[40,5]", "f32[3] c[3,8] - c[3,5]", 64,
                    4, .softcap = 2.0f),
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13]:T37 f32[13] c[13,3] c[37,3] f32[37]",
                    "f32[13] c[13,9] f32[37,3] c[13,3] f32[37]", 64, 4, .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[40,8] i32[3]:t40 f32[3] c[3,5] c[40,5] f32[40]",
                    "f32[3] c[3,8] - - f32[40]", 64, 4, .softcap = 2.0f),
    LATHE_LAST_CASE,
};

static const lathe_op_case eval_cases[] = {
    LATHE_CASE_WITH("c[13,5]:w c[101,5]:w i32[13]:T101", "f32[13] f32[13] i32[13]", 110, 0,
                    .chunk_rows = 8),
    LATHE_CASE_WITH("c[13,5]:w c[101,5]:w i32[13]:T101 c[13,2]:w c[101,2]:w",
                    "f32[13] f32[13] i32[13]", 120, 0, .chunk_rows = 8),
    LATHE_CASE_WITH("c[13,5]:w c[101,5]:w i32[13]:T101 c[13,2]:w c[101,2]:w f32[101]:w",
                    "f32[13] f32[13] i32[13]", 120, 0, .chunk_rows = 8),
    LATHE_LAST_CASE,
};

static const lathe_op_case sample_cases[] = {
    LATHE_CASE_WITH("c[37,5]:w c[101,5]:w i32[37]:T101 i64[5]:r", "i32[37]", 0, 0, .rng_stream = 9),
    LATHE_CASE_WITH("c[38,5]:w c[101,5]:w i32[38]:T101 i64[5]:R", "i32[38]", 0, 0, .rng_stream = 9),
    LATHE_CASE_WITH("c[37,5]:w c[101,5]:w i32[37]:T101 i64[5]:r c[37,2]:w c[101,2]:w", "i32[37]", 0,
                    0, .rng_stream = 9),
    LATHE_CASE_WITH("c[37,5]:w c[101,5]:w i32[37]:T101 i64[5]:r c[37,2]:w c[101,2]:w f32[101]:w",
                    "i32[37]", 0, 0, .rng_stream = 9),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(HEAD_LOGPROB, .infer = infer, .derive = derive, .flops = flops, .check = check,
                .exact = exact, .cases = logprob_cases);
LATHE_OP_DEFINE(HEAD_LOGPROB_BWD, .accumulates = 1, .param_outputs = 20, .infer = infer,
                .flops = flops_bwd, .check = check, .exact = exact, .cases = logprob_bwd_cases);
LATHE_OP_DEFINE(HEAD_EVAL, .infer = infer, .flops = flops, .check = check, .exact = exact,
                .cases = eval_cases);
LATHE_OP_DEFINE(HEAD_SAMPLE, .infer = infer, .flops = flops, .check = check, .exact = exact,
                .cases = sample_cases);
LATHE_OP_DEFINE(HEAD_ENTROPY, .infer = infer, .derive = derive, .flops = flops, .check = check,
                .exact = exact, .cases = logprob_cases);
LATHE_OP_DEFINE(HEAD_ENTROPY_BWD, .accumulates = 1, .param_outputs = 20, .infer = infer,
                .flops = flops_bwd, .check = check, .exact = exact, .cases = logprob_bwd_cases);

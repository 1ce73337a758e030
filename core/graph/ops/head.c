/* The head over the vocabulary: HEAD_LOGPROB, HEAD_ENTROPY, their derivatives, HEAD_EVAL,
 * HEAD_SAMPLE. Each may have two more inputs, u [N,R] and v [V,R], which add u v^T to the logits,
 * and with these a third one, s f32[V], by which the columns of the sum are multiplied. */
#include <math.h>
#include <stdlib.h>

#include "graph/ops/head_terms.h"
#include "lathe/rng.h"

static int32_t is_backward(const lathe_op_problem *p)
{
    return p->op == LATHE_OP_HEAD_LOGPROB_BWD || p->op == LATHE_OP_HEAD_ENTROPY_BWD;
}

static lathe__head_inputs inputs_of(const lathe_op_problem *p)
{
    const int has_fourth = is_backward(p) || p->op == LATHE_OP_HEAD_SAMPLE;
    const lathe__head_inputs out = {0, has_fourth ? 4 : 3};
    return out;
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
        lathe__head_infer_gradients(p, inputs_of(p));
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
    return lathe__head_infer(p, inputs_of(p));
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const int32_t op =
        n->op == LATHE_OP_HEAD_LOGPROB ? LATHE_OP_HEAD_LOGPROB_BWD : LATHE_OP_HEAD_ENTROPY_BWD;
    lathe__head_derive(t, n, dy, op, 3, (lathe__head_inputs){0, 3});
}

static double flops(const lathe_op_problem *p)
{
    return lathe__head_flops(p, inputs_of(p));
}

static double flops_bwd(const lathe_op_problem *p)
{
    return lathe__head_flops_bwd(p, inputs_of(p));
}

static lathe_status check(const lathe_op_problem *p)
{
    if (p->in[1].rank != 2 || lathe_desc_count(&p->in[1]) < 1)
        return lathe__refuse_shape(p, "W must be [V, C], both at least 1");
    const int64_t n = lathe_desc_count(&p->in[2]);
    int64_t r = 0;
    LATHE_TRY(lathe__head_check(p, inputs_of(p), n, &r));
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
    return lathe__head_check_gradients(p, inputs_of(p), n, r);
}

/* Computes row r's logits, [V], and returns log(sum(exp)). */
static double logits_of(const lathe_op_problem *p, double *const *in, int64_t r, double *logits)
{
    const int64_t vocabulary = p->in[1].dims[0];
    const double cap = (double)p->attrs.softcap;
    double top = -HUGE_VAL, sum = 0.0;
    for (int64_t v = 0; v < vocabulary; v++) {
        const double x = lathe__head_logit(p, in, inputs_of(p), r, v);
        logits[v] = cap > 0.0 ? cap * tanh(x / cap) : x;
        top = fmax(top, logits[v]);
    }
    for (int64_t v = 0; v < vocabulary; v++)
        sum += exp(logits[v] - top);
    return top + log(sum);
}

static void head_backward_row(const lathe_op_problem *p, double *const *in, double *const *out,
                              int64_t r, const double *logits, double lse)
{
    const int64_t vocabulary = p->in[1].dims[0];
    const double cap = (double)p->attrs.softcap;
    for (int64_t v = 0; v < vocabulary; v++) {
        const double slope = cap > 0.0 ? 1.0 - (logits[v] / cap) * (logits[v] / cap) : 1.0;
        const double hit = v == (int64_t)in[2][r] ? 1.0 : 0.0;
        lathe__head_add_gradient(p, in, out, inputs_of(p), r, v,
                                 in[3][r] * (hit - exp(logits[v] - lse)) * slope);
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
        lathe__head_add_gradient(p, in, out, inputs_of(p), r, v,
                                 -in[3][r] * exp(logp) * (logp + entropy) * slope);
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
                    "f32[13] c[13,9] - c[13,3] - f32[37,3]", 64, 4, .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[40,8] i32[3]:t40 f32[3] c[3,5] c[40,5]", "f32[3] c[3,8] - c[3,5]", 64,
                    4, .softcap = 2.0f),
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13]:T37 f32[13] c[13,3] c[37,3] f32[37]",
                    "f32[13] c[13,9] - c[13,3] f32[37] f32[37,3]", 64, 4, .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[40,8] i32[3]:t40 f32[3] c[3,5] c[40,5] f32[40]",
                    "f32[3] c[3,8] - - f32[40]", 64, 4, .softcap = 2.0f),
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13]:T37 f32[13] c[13,1] c[37,1]",
                    "f32[13] c[13,9] f32[37,9] - - f32[37,1]", 64, 4, .chunk_rows = 4),
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
LATHE_OP_DEFINE(HEAD_LOGPROB_BWD, .accumulates = 1, .param_outputs = LATHE__HEAD_PARAM_OUTPUTS,
                .infer = infer, .flops = flops_bwd, .check = check, .exact = exact,
                .cases = logprob_bwd_cases);
LATHE_OP_DEFINE(HEAD_EVAL, .infer = infer, .flops = flops, .check = check, .exact = exact,
                .cases = eval_cases);
LATHE_OP_DEFINE(HEAD_SAMPLE, .infer = infer, .flops = flops, .check = check, .exact = exact,
                .cases = sample_cases);
LATHE_OP_DEFINE(HEAD_ENTROPY, .infer = infer, .derive = derive, .flops = flops, .check = check,
                .exact = exact, .cases = logprob_cases);
LATHE_OP_DEFINE(HEAD_ENTROPY_BWD, .accumulates = 1, .param_outputs = LATHE__HEAD_PARAM_OUTPUTS,
                .infer = infer, .flops = flops_bwd, .check = check, .exact = exact,
                .cases = logprob_bwd_cases);

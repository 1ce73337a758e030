/* HEAD_DIVERGENCE and its derivative: how far the distribution of one model over the vocabulary is
 * from that of another. */
#include <math.h>
#include <stdlib.h>

#include "ir/ops/rules.h"

static int32_t is_backward(const lathe_op_problem *p)
{
    return p->op == LATHE_OP_HEAD_DIVERGENCE_BWD;
}

/* x c[N,C] and W c[V,C], at inputs i and i + 1 */
static int is_head(const lathe_op_problem *p, int32_t i)
{
    const lathe_desc *x = lathe__in(p, i), *w = lathe__in(p, i + 1);
    return x && w && x->rank == 2 && w->rank == 2 && x->dims[1] == w->dims[1] &&
           x->dtype == w->dtype;
}

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *targets = lathe__in(p, 4);
    if (!is_head(p, 0) || !is_head(p, 2) || !targets || p->in[0].dims[0] != p->in[2].dims[0] ||
        p->in[1].dims[0] != p->in[3].dims[0] || targets->dtype != LATHE_I32 ||
        lathe_desc_count(targets) != p->in[0].dims[0])
        return lathe__bad_inputs(p, "x c[N,C], W c[V,C], y d[N,D], U d[V,D], targets i32[N]");
    p->out[0] = lathe_desc_1d(LATHE_F32, p->in[0].dims[0]);
    if (!is_backward(p))
        return LATHE_OK;
    if (!lathe__in(p, 5) || !lathe__is_vector(lathe__in(p, 5), p->in[0].dims[0]))
        return lathe__bad_inputs(p, "the gradient f32[N] after x, W, y, U and targets");
    p->out[1] = p->in[0];
    p->out[2] = lathe__with_dtype(p->in[1], LATHE_F32);
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val in[6] = {n->in[0], n->in[1], n->in[2], n->in[3], n->in[4], dy};
    const lathe_val targets[3] = {n->out[0], n->in[0], n->in[1]};
    /* output 0 repeats the forward's result; it is not a gradient */
    t->g->values[n->out[0]].needs_grad = 0;
    lathe__emit(t, LATHE_OP_HEAD_DIVERGENCE_BWD, &n->attrs, in, 6, targets, 3, 3, n->label);
    t->g->values[n->out[0]].needs_grad = 1;
}

/* The logits of both models; backward: dx, and dW if wanted. */
static double flops(const lathe_op_problem *p)
{
    const double own = (double)lathe_desc_count(&p->in[0]) * (double)p->in[1].dims[0];
    const double other = (double)lathe_desc_count(&p->in[2]) * (double)p->in[1].dims[0];
    const double products = !is_backward(p) ? 1.0 : lathe__out(p, 2) ? 3.0 : 2.0;
    return 2.0 * (products * own + other);
}

static lathe_status check(const lathe_op_problem *p)
{
    if (p->in[1].rank != 2 || p->in[3].rank != 2 || lathe_desc_count(&p->in[1]) < 1 ||
        lathe_desc_count(&p->in[3]) < 1)
        return lathe__refuse_shape(p, "W and U must be matrices of at least one row and column");
    const int64_t n = lathe_desc_count(&p->in[4]), v = p->in[1].dims[0], c = p->in[1].dims[1];
    const int64_t d = p->in[3].dims[1];
    if (n < 1)
        return lathe__refuse_shape(p, "there must be at least one row");
    if (!(p->attrs.alpha > 0.0) || !(p->attrs.beta >= 0.0 && p->attrs.beta <= 1.0))
        return lathe__refuse_shape(p, "the temperature must be above 0, and beta from 0 to 1");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n * c));
    LATHE_TRY(lathe__check_in(p, 1, p->in[0].dtype, v * c));
    LATHE_TRY(lathe__check_in(p, 2, LATHE__COMPUTE, n * d));
    LATHE_TRY(lathe__check_in(p, 3, p->in[2].dtype, v * d));
    LATHE_TRY(lathe__check_in(p, 4, LATHE_I32, n));
    LATHE_TRY(lathe__check_out(p, 0, LATHE_F32, n));
    if (!is_backward(p))
        return LATHE_OK;
    LATHE_TRY(lathe__check_in(p, 5, LATHE_F32, n));
    if (lathe__out(p, 1))
        LATHE_TRY(lathe__check_out(p, 1, p->in[0].dtype, n * c));
    return lathe__out(p, 2) ? lathe__check_out(p, 2, LATHE_F32, v * c) : LATHE_OK;
}

/* ---- the exact result, in double ---- */

/* Log-probabilities of row r of a head at inputs i and i + 1; slope: d (scaled logit) / d logit,
 * or NULL. */
static void log_probabilities(const lathe_op_problem *p, double *const *in, int32_t i, int64_t r,
                              double cap, double *logp, double *slope)
{
    const int64_t width = p->in[i + 1].dims[1], vocabulary = p->in[i + 1].dims[0];
    double top = -HUGE_VAL, sum = 0.0;
    for (int64_t v = 0; v < vocabulary; v++) {
        double x = 0.0;
        for (int64_t k = 0; k < width; k++)
            x += in[i][r * width + k] * in[i + 1][v * width + k];
        const double s = cap > 0.0 ? cap * tanh(x / cap) : x;
        logp[v] = s / p->attrs.alpha;
        top = fmax(top, logp[v]);
        if (slope)
            slope[v] = (cap > 0.0 ? 1.0 - (s / cap) * (s / cap) : 1.0) / p->attrs.alpha;
    }
    for (int64_t v = 0; v < vocabulary; v++)
        sum += exp(logp[v] - top);
    for (int64_t v = 0; v < vocabulary; v++)
        logp[v] -= top + log(sum);
}

/* log m, the distribution that p is compared with: q, or the mixture beta q + (1 - beta) p */
static double log_other(double beta, double logp, double logq)
{
    return beta >= 1.0 ? logq : log(beta * exp(logq) + (1.0 - beta) * exp(logp));
}

/* The divergence of a row, and in g[V] its derivative by the scaled logits of p. */
static double divergence(double beta, int64_t n, const double *logp, const double *logq, double *g)
{
    double of_p = 0.0, of_q = 0.0; /* KL(p || m), KL(q || m) */
    if (beta <= 0.0) {
        for (int64_t v = 0; v < n; v++) {
            of_q += exp(logq[v]) * (logq[v] - logp[v]);
            g[v] = exp(logp[v]) - exp(logq[v]);
        }
        return of_q;
    }
    for (int64_t v = 0; v < n; v++) {
        const double logm = log_other(beta, logp[v], logq[v]);
        of_p += exp(logp[v]) * (logp[v] - logm);
        of_q += exp(logq[v]) * (logq[v] - logm);
    }
    const double share = beta >= 1.0 ? 1.0 : 1.0 - beta;
    for (int64_t v = 0; v < n; v++)
        g[v] = share * exp(logp[v]) * (logp[v] - log_other(beta, logp[v], logq[v]) - of_p);
    return beta >= 1.0 ? of_p : beta * of_q + (1.0 - beta) * of_p;
}

static void gradient_row(const lathe_op_problem *p, double *const *in, double *const *out,
                         int64_t r, const double *g, const double *slope)
{
    const int64_t width = p->in[1].dims[1], vocabulary = p->in[1].dims[0];
    for (int64_t v = 0; v < vocabulary; v++)
        for (int64_t i = 0; i < width; i++) {
            const double dl = in[5][r] * g[v] * slope[v];
            out[1][r * width + i] += dl * in[1][v * width + i];
            if (out[2] != NULL)
                out[2][v * width + i] += dl * in[0][r * width + i];
        }
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = lathe_desc_count(&p->in[4]), v = p->in[1].dims[0];
    double *logp = malloc(4 * (size_t)v * sizeof *logp);
    double *logq = logp + v, *g = logq + v, *slope = g + v;
    for (int64_t r = 0; logp != NULL && r < n; r++) {
        if (in[4][r] < 0.0)
            continue;
        log_probabilities(p, in, 0, r, (double)p->attrs.softcap, logp, slope);
        log_probabilities(p, in, 2, r, (double)p->attrs.scale, logq, NULL);
        out[0][r] = divergence(p->attrs.beta, v, logp, logq, g);
        if (is_backward(p))
            gradient_row(p, in, out, r, g, slope);
    }
    free(logp);
}

static const lathe_op_case cases[] = {
    LATHE_CASE_WITH("c[13,9] c[37,9] c[13,5] c[37,5] i32[13]:T37", "f32[13]", 64, 8, .alpha = 1.0,
                    .chunk_rows = 4),
    LATHE_CASE_WITH("c[13,9] c[37,9] c[13,5] c[37,5] i32[13]:T37", "f32[13]", 64, 8, .alpha = 2.0,
                    .beta = 1.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[130,8] f32[3,8] f32[130,8] i32[3]:t130", "f32[3]", 160, 8,
                    .alpha = 0.5, .beta = 0.3, .softcap = 2.0f, .scale = 3.0f),
    LATHE_LAST_CASE,
};

static const lathe_op_case bwd_cases[] = {
    LATHE_CASE_WITH("c[13,9] c[37,9] c[13,5] c[37,5] i32[13]:T37 f32[13]",
                    "f32[13] c[13,9] f32[37,9]", 96, 8, .alpha = 1.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[13,9] c[37,9] c[13,5] c[37,5] i32[13]:T37 f32[13]",
                    "f32[13] c[13,9] f32[37,9]", 96, 8, .alpha = 2.0, .beta = 1.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[40,8] f32[3,8] f32[40,8] i32[3]:t40 f32[3]", "f32[3] c[3,8] -", 96, 8,
                    .alpha = 1.5, .beta = 0.3, .softcap = 2.0f, .scale = 3.0f),
    LATHE_LAST_CASE,
};

/* The second model is frozen: its inputs get no gradient. */
LATHE_OP_DEFINE(HEAD_DIVERGENCE, .infer = infer, .derive = derive, .flops = flops, .check = check,
                .exact = exact, .fixed_inputs = 0x1c, .cases = cases);
LATHE_OP_DEFINE(HEAD_DIVERGENCE_BWD, .accumulates = 1, .param_outputs = 4, .infer = infer,
                .flops = flops, .check = check, .exact = exact, .cases = bwd_cases);

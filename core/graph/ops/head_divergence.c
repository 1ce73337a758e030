/* HEAD_DIVERGENCE and its derivative: how far the distribution of one model over the vocabulary is
 * from that of another. */
#include <math.h>
#include <stdlib.h>

#include "graph/ops/head_terms.h"

static int32_t is_backward(const lathe_op_problem *p)
{
    return p->op == LATHE_OP_HEAD_DIVERGENCE_BWD;
}

/* Inputs of the model that learns. */
static lathe__head_inputs own_of(const lathe_op_problem *p)
{
    const lathe__head_inputs out = {0, is_backward(p) ? 6 : 5};
    return out;
}

/* Inputs of the model that it is compared with. */
static lathe__head_inputs other_of(const lathe_op_problem *p)
{
    const lathe__head_inputs out = {2, is_backward(p) ? 9 : 8};
    return out;
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
        targets->dtype != LATHE_I32 || lathe_desc_count(targets) != p->in[0].dims[0])
        return lathe__bad_inputs(p, "x c[N,C], W c[V,C], y d[N,D], U d[V',D], targets i32[N]");
    p->out[0] = lathe_desc_1d(LATHE_F32, p->in[0].dims[0]);
    LATHE_TRY(lathe__head_infer(p, own_of(p)));
    LATHE_TRY(lathe__head_infer(p, other_of(p)));
    if (!is_backward(p))
        return LATHE_OK;
    if (!lathe__in(p, 5) || !lathe__is_vector(lathe__in(p, 5), p->in[0].dims[0]))
        return lathe__bad_inputs(p, "the gradient f32[N] after x, W, y, U and targets");
    lathe__head_infer_gradients(p, own_of(p));
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__head_derive(t, n, dy, LATHE_OP_HEAD_DIVERGENCE_BWD, 5, (lathe__head_inputs){0, 5});
}

static double flops(const lathe_op_problem *p)
{
    const double own =
        is_backward(p) ? lathe__head_flops_bwd(p, own_of(p)) : lathe__head_flops(p, own_of(p));
    return own + lathe__head_flops(p, other_of(p));
}

static lathe_status check(const lathe_op_problem *p)
{
    if (p->in[1].rank != 2 || p->in[3].rank != 2 || lathe_desc_count(&p->in[1]) < 1 ||
        lathe_desc_count(&p->in[3]) < 1)
        return lathe__refuse_shape(p, "W and U must be matrices of at least one row and column");
    const int64_t n = lathe_desc_count(&p->in[4]);
    int64_t r = 0, other_r = 0;
    if (!(p->attrs.alpha > 0.0) || !(p->attrs.beta >= 0.0 && p->attrs.beta <= 1.0))
        return lathe__refuse_shape(p, "the temperature must be above 0, and beta from 0 to 1");
    LATHE_TRY(lathe__head_check(p, own_of(p), n, &r));
    LATHE_TRY(lathe__head_check(p, other_of(p), n, &other_r));
    LATHE_TRY(lathe__check_in(p, 4, LATHE_I32, n));
    LATHE_TRY(lathe__check_out(p, 0, LATHE_F32, n));
    if (!is_backward(p))
        return LATHE_OK;
    LATHE_TRY(lathe__check_in(p, 5, LATHE_F32, n));
    return lathe__head_check_gradients(p, own_of(p), n, r);
}

/* ---- the exact result, in double ---- */

/* Number of tokens that both models have: the first rows of W and U. */
static int64_t common_tokens(const lathe_op_problem *p)
{
    const int64_t own = p->in[1].dims[0], other = p->in[3].dims[0];
    return own < other ? own : other;
}

/* Log-probabilities of row r of a model; slope: d (scaled logit) / d logit, or NULL. */
static void log_probabilities(const lathe_op_problem *p, double *const *in, lathe__head_inputs h,
                              int64_t r, double cap, double *logp, double *slope)
{
    const int64_t vocabulary = common_tokens(p);
    double top = -HUGE_VAL, sum = 0.0;
    for (int64_t v = 0; v < vocabulary; v++) {
        const double x = lathe__head_logit(p, in, h, r, v);
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
    for (int64_t v = 0; v < common_tokens(p); v++)
        lathe__head_add_gradient(p, in, out, own_of(p), r, v, in[5][r] * g[v] * slope[v]);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = lathe_desc_count(&p->in[4]), v = common_tokens(p);
    double *logp = malloc(4 * (size_t)v * sizeof *logp);
    double *logq = logp + v, *g = logq + v, *slope = g + v;
    for (int64_t r = 0; logp != NULL && r < n; r++) {
        if (in[4][r] < 0.0)
            continue;
        log_probabilities(p, in, own_of(p), r, (double)p->attrs.softcap, logp, slope);
        log_probabilities(p, in, other_of(p), r, (double)p->attrs.scale, logq, NULL);
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
    LATHE_CASE_WITH("c[13,9] c[37,9] c[13,5] c[37,5] i32[13]:T37 c[13,3] c[37,3]", "f32[13]", 64, 8,
                    .alpha = 1.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[13,9] c[37,9] c[13,5] c[37,5] i32[13]:T37 c[13,3] c[37,3] f32[37] c[13,2] "
                    "c[37,2] f32[37]",
                    "f32[13]", 64, 8, .alpha = 2.0, .beta = 1.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[130,8] f32[3,8] f32[130,8] i32[3]:t130 c[3,2] c[130,2] f32[130]",
                    "f32[3]", 160, 8, .alpha = 0.5, .beta = 0.3, .softcap = 2.0f, .scale = 3.0f),
    LATHE_CASE_WITH("c[3,8] c[130,8] f32[3,8] f32[130,8] i32[3]:t130 - - - f32[3,2] f32[130,2]",
                    "f32[3]", 160, 8, .alpha = 0.5, .scale = 3.0f),
    LATHE_CASE_WITH("c[13,9] c[37,9] c[13,5] c[70,5] i32[13]:T37", "f32[13]", 96, 8, .alpha = 1.0,
                    .chunk_rows = 4),
    LATHE_CASE_WITH("c[13,9] c[600,9] f32[13,5] f32[37,5] i32[13]:T37 c[13,3] c[600,3] f32[600]",
                    "f32[13]", 96, 8, .alpha = 2.0, .beta = 0.3, .chunk_rows = 4),
    LATHE_LAST_CASE,
};

static const lathe_op_case bwd_cases[] = {
    LATHE_CASE_WITH("c[13,9] c[37,9] c[13,5] c[37,5] i32[13]:T37 f32[13]",
                    "f32[13] c[13,9] f32[37,9]", 96, 8, .alpha = 1.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[13,9] c[37,9] c[13,5] c[37,5] i32[13]:T37 f32[13]",
                    "f32[13] c[13,9] f32[37,9]", 96, 8, .alpha = 2.0, .beta = 1.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[40,8] f32[3,8] f32[40,8] i32[3]:t40 f32[3]", "f32[3] c[3,8] -", 96, 8,
                    .alpha = 1.5, .beta = 0.3, .softcap = 2.0f, .scale = 3.0f),
    LATHE_CASE_WITH("c[13,9] c[37,9] c[13,5] c[37,5] i32[13]:T37 f32[13] c[13,3] c[37,3]",
                    "f32[13] c[13,9] - c[13,3] - f32[37,3]", 96, 8, .alpha = 1.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[13,9] c[37,9] c[13,5] c[37,5] i32[13]:T37 f32[13] c[13,3] c[37,3] f32[37] "
                    "c[13,2] c[37,2] f32[37]",
                    "f32[13] c[13,9] - c[13,3] f32[37] f32[37,3]", 96, 8, .alpha = 2.0, .beta = 1.0,
                    .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[40,8] f32[3,8] f32[40,8] i32[3]:t40 f32[3] c[3,5] c[40,5] f32[40]",
                    "f32[3] c[3,8] - - f32[40]", 96, 8, .alpha = 1.5, .beta = 0.3, .softcap = 2.0f,
                    .scale = 3.0f),
    LATHE_CASE_WITH("c[13,9] c[37,9] c[13,5] c[37,5] i32[13]:T37 f32[13] - - - c[13,2] c[37,2]",
                    "f32[13] c[13,9] f32[37,9]", 96, 8, .alpha = 1.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[13,9] c[37,9] c[13,5] c[70,5] i32[13]:T37 f32[13]",
                    "f32[13] c[13,9] f32[37,9]", 96, 8, .alpha = 2.0, .beta = 1.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[13,9] c[600,9] f32[13,5] f32[37,5] i32[13]:T37 f32[13]",
                    "f32[13] c[13,9] f32[600,9]", 96, 8, .alpha = 1.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[13,9] c[600,9] c[13,5] c[37,5] i32[13]:T37 f32[13] c[13,3] c[600,3] "
                    "f32[600]",
                    "f32[13] c[13,9] - c[13,3] f32[600] f32[600,3]", 96, 8, .alpha = 1.5,
                    .beta = 0.3, .softcap = 2.0f, .scale = 3.0f, .chunk_rows = 4),
    LATHE_LAST_CASE,
};

/* The second model is frozen: its inputs get no gradient. */
LATHE_OP_DEFINE(HEAD_DIVERGENCE, .infer = infer, .derive = derive, .flops = flops, .check = check,
                .exact = exact, .fixed_inputs = 0x71c, .cases = cases);
LATHE_OP_DEFINE(HEAD_DIVERGENCE_BWD, .accumulates = 1, .param_outputs = LATHE__HEAD_PARAM_OUTPUTS,
                .infer = infer, .flops = flops, .check = check, .exact = exact, .cases = bwd_cases);

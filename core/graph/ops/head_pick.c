/* HEAD_PICK and its derivative: log-probabilities of given tokens at each row, and of all other
 * tokens together. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "graph/ops/head_terms.h"

static int32_t is_backward(const lathe_op_problem *p)
{
    return p->op == LATHE_OP_HEAD_PICK_BWD;
}

static lathe__head_inputs inputs_of(const lathe_op_problem *p)
{
    const lathe__head_inputs out = {0, is_backward(p) ? 4 : 3};
    return out;
}

/* 1: y has a last column for the tokens that are not picked. */
static int32_t has_rest(const lathe_op_problem *p)
{
    return p->attrs.beta <= 0.0;
}

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0), *w = lathe__in(p, 1), *ids = lathe__in(p, 2);
    if (!x || !w || !ids || x->rank != 2 || w->rank != 2 || ids->rank != 2 ||
        x->dims[1] != w->dims[1] || x->dtype != w->dtype || ids->dtype != LATHE_I32 ||
        ids->dims[0] != x->dims[0] || ids->dims[1] < 1)
        return lathe__bad_inputs(p, "x c[N,C], W c[V,C], ids i32[N,K]");
    p->out[0] = lathe_desc_2d(LATHE_F32, x->dims[0], ids->dims[1] + has_rest(p));
    if (!is_backward(p))
        return lathe__head_infer(p, inputs_of(p));
    const lathe_desc *dy = lathe__in(p, 3);
    if (!dy || dy->dtype != LATHE_F32 || !lathe__same_shape(dy, &p->out[0]))
        return lathe__bad_inputs(p, "the gradient of y beside x, W and ids");
    lathe__head_infer_gradients(p, inputs_of(p));
    return lathe__head_infer(p, inputs_of(p));
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__head_derive(t, n, dy, LATHE_OP_HEAD_PICK_BWD, 3, (lathe__head_inputs){0, 3});
}

static double flops(const lathe_op_problem *p)
{
    return is_backward(p) ? lathe__head_flops_bwd(p, inputs_of(p))
                          : lathe__head_flops(p, inputs_of(p));
}

static lathe_status check(const lathe_op_problem *p)
{
    if (p->in[1].rank != 2 || lathe_desc_count(&p->in[1]) < 1 || p->in[2].rank != 2)
        return lathe__refuse_shape(p, "W must be [V, C], both at least 1, and ids [N, K]");
    const int64_t n = p->in[2].dims[0], k = p->in[2].dims[1];
    int64_t r = 0;
    if (n < 1 || k < 1 || k > p->in[1].dims[0])
        return lathe__refuse_shape(p, "there must be at least one row, and from 1 to V ids in it");
    if (!(p->attrs.alpha > 0.0) || !(p->attrs.beta >= 0.0 && p->attrs.beta <= 1.0))
        return lathe__refuse_shape(p, "the temperature must be above 0, and beta 0 or 1");
    LATHE_TRY(lathe__head_check(p, inputs_of(p), n, &r));
    LATHE_TRY(lathe__check_in(p, 2, LATHE_I32, n * k));
    LATHE_TRY(lathe__check_out(p, 0, LATHE_F32, n * (k + has_rest(p))));
    if (!is_backward(p))
        return LATHE_OK;
    LATHE_TRY(lathe__check_in(p, 3, LATHE_F32, n * (k + has_rest(p))));
    return lathe__head_check_gradients(p, inputs_of(p), n, r);
}

/* ---- the exact result, in double ---- */

/* A row's vocabulary: scaled logits, their slope by the logits, which are picked, the gradient. */
typedef struct scaled_row {
    double *s, *slope, *is_picked, *g;
} scaled_row;

static void scale_row(const lathe_op_problem *p, double *const *in, int64_t r, const scaled_row *to)
{
    const int64_t k = p->in[2].dims[1];
    const double cap = (double)p->attrs.softcap;
    for (int64_t v = 0; v < p->in[1].dims[0]; v++) {
        const double x = lathe__head_logit(p, in, inputs_of(p), r, v);
        const double capped = cap > 0.0 ? cap * tanh(x / cap) : x;
        to->s[v] = capped / p->attrs.alpha;
        to->slope[v] = (cap > 0.0 ? 1.0 - (capped / cap) * (capped / cap) : 1.0) / p->attrs.alpha;
        to->is_picked[v] = to->g[v] = 0.0;
    }
    for (int64_t j = 0; j < k; j++)
        if (in[2][r * k + j] >= 0.0)
            to->is_picked[(int64_t)in[2][r * k + j]] = 1.0;
}

/* Log of the sum of exp(s) over the tokens of the row whose is_picked is `which`. */
static double log_sum(const scaled_row *row, int64_t v, double which)
{
    double top = -HUGE_VAL, sum = 0.0;
    for (int64_t i = 0; i < v; i++)
        top = row->is_picked[i] == which ? fmax(top, row->s[i]) : top;
    for (int64_t i = 0; i < v && top > -HUGE_VAL; i++)
        sum += row->is_picked[i] == which ? exp(row->s[i] - top) : 0.0;
    return top > -HUGE_VAL ? top + log(sum) : -HUGE_VAL;
}

static double log_add(double a, double b)
{
    const double high = fmax(a, b), low = fmin(a, b);
    return low > -HUGE_VAL ? high + log1p(exp(low - high)) : high;
}

static void exact_row(const lathe_op_problem *p, double *const *in, double *const *out, int64_t r,
                      const scaled_row *row)
{
    const int64_t v = p->in[1].dims[0], k = p->in[2].dims[1];
    const int64_t columns = k + has_rest(p);
    const double *dy = is_backward(p) ? in[3] + r * columns : NULL;
    const double of_rest = log_sum(row, v, 0.0), of_picked = log_sum(row, v, 1.0);
    const double lse = has_rest(p) ? log_add(of_rest, of_picked) : of_picked;
    double all = 0.0, rest = 0.0; /* sum of the gradients; that of the last column */
    for (int64_t j = 0; j < k; j++) {
        const int64_t id = (int64_t)in[2][r * k + j];
        if (id < 0)
            continue;
        out[0][r * columns + j] = row->s[id] - lse;
        all += dy ? dy[j] : 0.0;
        row->g[id] += dy ? dy[j] : 0.0;
    }
    if (has_rest(p)) {
        const int is_low = of_rest - lse < log((double)FLT_MIN);
        out[0][r * columns + k] = is_low ? log((double)FLT_MIN) : of_rest - lse;
        rest = dy && !is_low ? dy[k] : 0.0;
    }
    for (int64_t i = 0; dy && i < v; i++) {
        const double p_i = has_rest(p) || row->is_picked[i] > 0.0 ? exp(row->s[i] - lse) : 0.0;
        const double of_other = row->is_picked[i] > 0.0 ? 0.0 : rest * exp(row->s[i] - of_rest);
        const double g =
            (row->g[i] + (rest != 0.0 ? of_other : 0.0) - (all + rest) * p_i) * row->slope[i];
        lathe__head_add_gradient(p, in, out, inputs_of(p), r, i, g);
    }
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t v = p->in[1].dims[0], k = p->in[2].dims[1];
    double *memory = malloc(4 * (size_t)v * sizeof *memory);
    const scaled_row row = {memory, memory + v, memory + 2 * v, memory + 3 * v};
    for (int64_t r = 0; memory != NULL && r < p->in[2].dims[0]; r++) {
        int has_any = 0;
        for (int64_t j = 0; j < k; j++)
            has_any |= in[2][r * k + j] >= 0.0;
        if (!has_any)
            continue;
        scale_row(p, in, r, &row);
        exact_row(p, in, out, r, &row);
    }
    free(memory);
}

/* T: every third id is -1, so with one column every third row is skipped. The last case picks the
 * whole vocabulary. */
static const lathe_op_case cases[] = {
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13,4]:T37", "f32[13,5]", 64, 8, .alpha = 1.0,
                    .chunk_rows = 4),
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13,1]:T37", "f32[13,2]", 64, 8, .alpha = 2.0),
    LATHE_CASE_WITH("c[3,8] c[530,8] i32[3,6]:t530", "f32[3,6]", 560, 8, .alpha = 0.5, .beta = 1.0,
                    .softcap = 2.0f),
    LATHE_CASE_WITH("c[5,8] c[5,8] i32[5,5]:t5", "f32[5,6]", 64, 8, .alpha = 1.0),
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13,4]:T37 c[13,3] c[37,3]", "f32[13,5]", 64, 8,
                    .alpha = 1.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13,4]:T37 c[13,3] c[37,3] f32[37]", "f32[13,5]", 64, 8,
                    .alpha = 2.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[530,8] i32[3,6]:t530 c[3,2] c[530,2] f32[530]", "f32[3,6]", 560, 8,
                    .alpha = 0.5, .beta = 1.0, .softcap = 2.0f),
    LATHE_LAST_CASE,
};

static const lathe_op_case bwd_cases[] = {
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13,4]:T37 f32[13,5]", "f32[13,5] c[13,9] f32[37,9]", 96, 8,
                    .alpha = 1.0, .chunk_rows = 4),
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13,1]:T37 f32[13,2]", "f32[13,2] c[13,9] f32[37,9]", 96, 8,
                    .alpha = 2.0),
    LATHE_CASE_WITH("c[3,8] c[40,8] i32[3,6]:t40 f32[3,6]", "f32[3,6] c[3,8] -", 96, 8,
                    .alpha = 1.5, .beta = 1.0, .softcap = 2.0f),
    LATHE_CASE_WITH("c[5,8] c[5,8] i32[5,5]:t5 f32[5,6]", "f32[5,6] c[5,8] f32[5,8]", 64, 8,
                    .alpha = 1.0),
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13,4]:T37 f32[13,5] c[13,3] c[37,3]",
                    "f32[13,5] c[13,9] - c[13,3] - f32[37,3]", 96, 8, .alpha = 1.0,
                    .chunk_rows = 4),
    LATHE_CASE_WITH("c[13,9] c[37,9] i32[13,1]:T37 f32[13,2] c[13,3] c[37,3] f32[37]",
                    "f32[13,2] c[13,9] - c[13,3] f32[37] f32[37,3]", 96, 8, .alpha = 2.0,
                    .chunk_rows = 4),
    LATHE_CASE_WITH("c[3,8] c[40,8] i32[3,6]:t40 f32[3,6] c[3,5] c[40,5] f32[40]",
                    "f32[3,6] c[3,8] - - f32[40]", 96, 8, .alpha = 1.5, .beta = 1.0,
                    .softcap = 2.0f),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(HEAD_PICK, .infer = infer, .derive = derive, .flops = flops, .check = check,
                .exact = exact, .cases = cases);
LATHE_OP_DEFINE(HEAD_PICK_BWD, .accumulates = 1, .param_outputs = LATHE__HEAD_PARAM_OUTPUTS,
                .infer = infer, .flops = flops, .check = check, .exact = exact, .cases = bwd_cases);

/* Ops that select elements: MIN, MAX, LESS, WHERE, and WHERE_BWD, the derivative of MIN, MAX and
 * WHERE. */
#include <math.h>

#include "graph/ops/rules.h"

static lathe_status infer_where(lathe_op_problem *p)
{
    const lathe_desc *a = lathe__in(p, 1), *b = lathe__in(p, 2);
    LATHE_TRY(lathe__infer_pair(p)); /* the condition and a */
    if (!b || !lathe__same_shape(a, b) || a->dtype != b->dtype)
        return lathe__bad_inputs(p, "a condition and two tensors, all of one shape and dtype");
    return LATHE_OK;
}

static lathe_status infer_bwd(lathe_op_problem *p)
{
    LATHE_TRY(lathe__infer_pair(p));
    p->out[1] = p->out[0];
    return LATHE_OK;
}

static void choose(lathe_tape *t, const lathe_ir_node *n, lathe_val dy, lathe_val condition,
                   const lathe_val *targets)
{
    const lathe_val in[2] = {dy, condition};
    if (lathe__needs(t, targets[0]) || lathe__needs(t, targets[1]))
        lathe__emit(t, LATHE_OP_WHERE_BWD, NULL, in, 2, targets, 3, 2, n->label);
}

static void derive_where(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    choose(t, n, dy, n->in[0], &n->in[1]);
}

/* The gradient goes to the input that was selected; if both are equal, to b. */
static void derive_min(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val a = n->in[0], b = n->in[1];
    choose(t, n, dy, lathe__emit_plain(t, LATHE_OP_LESS, NULL, a, b, n->label), n->in);
}

static void derive_max(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val a = n->in[0], b = n->in[1];
    choose(t, n, dy, lathe__emit_plain(t, LATHE_OP_LESS, NULL, b, a, n->label), n->in);
}

/* A step function has the derivative 0, except at the step. */
static void derive_less(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    (void)t, (void)n, (void)dy;
}

static double value(int32_t op, double a, double b)
{
    if (op == LATHE_OP_LESS)
        return a < b ? 1.0 : 0.0;
    return (op == LATHE_OP_MIN ? a < b : b < a) || isnan(a) ? a : b;
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = value(p->op, in[0][i], in[1][i]);
}

static void exact_where(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = in[0][i] > 0.5 ? in[1][i] : in[2][i];
}

static void exact_bwd(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++) {
        out[0][i] = in[1][i] > 0.5 ? in[0][i] : 0.0;
        out[1][i] = in[1][i] > 0.5 ? 0.0 : in[0][i];
    }
}

static const lathe_op_case pair_cases[] = {
    LATHE_CASE("c[1025] c[1025]", "c[1025]", 1, 0),
    LATHE_CASE("c[3,7]:w c[3,7]", "c[3,7]", 1, 0),
    LATHE_LAST_CASE,
};
static const lathe_op_case where_cases[] = {
    LATHE_CASE("c[1025]:w c[1025] c[1025]", "c[1025]", 1, 0),
    LATHE_CASE("c[3,7]:w c[3,7] c[3,7]", "c[3,7]", 1, 0),
    LATHE_LAST_CASE,
};
static const lathe_op_case bwd_cases[] = {
    LATHE_CASE("c[1025] c[1025]:w", "c[1025] c[1025]", 1, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(MIN, .inplace = 3, .infer = lathe__infer_pair, .derive = derive_min,
                .check = lathe__check_binary, .exact = exact, .cases = pair_cases);
LATHE_OP_DEFINE(MAX, .inplace = 3, .infer = lathe__infer_pair, .derive = derive_max,
                .check = lathe__check_binary, .exact = exact, .cases = pair_cases);
LATHE_OP_DEFINE(LESS, .inplace = 3, .infer = lathe__infer_pair, .derive = derive_less,
                .check = lathe__check_binary, .exact = exact, .cases = pair_cases);
LATHE_OP_DEFINE(WHERE, .inplace = 6, .infer = infer_where, .derive = derive_where,
                .check = lathe__check_alike, .exact = exact_where, .cases = where_cases);
LATHE_OP_DEFINE(WHERE_BWD, .accumulates = 1, .infer = infer_bwd, .check = lathe__check_alike,
                .exact = exact_bwd, .cases = bwd_cases);

/* Functions of one element: EXP, LOG, ABS, TANH, and the derivatives of the last two. */
#include <math.h>

#include "graph/ops/rules.h"

/* d exp(x) = exp(x) dx */
static void derive_exp(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_MUL, NULL, dy, n->out[0], n->in[0]);
}

/* d log(x) = dx / x */
static void derive_log(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_DIV, NULL, dy, n->in[0], n->in[0]);
}

static void derive_abs(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_ABS_BWD, NULL, dy, n->in[0], n->in[0]);
}

static void derive_tanh(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_TANH_BWD, NULL, dy, n->out[0], n->in[0]);
}

static double value(int32_t op, double a, double b)
{
    switch (op) {
    case LATHE_OP_EXP:
        return exp(a);
    case LATHE_OP_LOG:
        return log(a);
    case LATHE_OP_ABS:
        return fabs(a);
    case LATHE_OP_TANH:
        return tanh(a);
    case LATHE_OP_ABS_BWD:
        return b > 0.0 ? a : b < 0.0 ? -a : 0.0;
    default: /* TANH_BWD */
        return a * (1.0 - b * b);
    }
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = value(p->op, in[0][i], p->n_in > 1 ? in[1][i] : 0.0);
}

static const lathe_op_case signed_cases[] = {
    LATHE_CASE("c[1025]:2", "c[1025]", 4, 0),
    LATHE_CASE("c[3,7]:2", "c[3,7]", 4, 0),
    LATHE_LAST_CASE,
};
static const lathe_op_case positive_cases[] = {
    LATHE_CASE("c[1025]:+", "c[1025]", 4, 0),
    LATHE_CASE("c[3,7]:+", "c[3,7]", 4, 0),
    LATHE_LAST_CASE,
};
static const lathe_op_case bwd_cases[] = {
    LATHE_CASE("c[1025] c[1025]", "c[1025]", 4, 0),
    LATHE_CASE("c[3,7]:2 c[3,7]", "c[3,7]", 4, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(EXP, .inplace = 1, .infer = lathe__infer_like, .derive = derive_exp,
                .check = lathe__check_unary, .exact = exact, .cases = signed_cases);
LATHE_OP_DEFINE(LOG, .inplace = 1, .infer = lathe__infer_like, .derive = derive_log,
                .check = lathe__check_unary, .exact = exact, .cases = positive_cases);
LATHE_OP_DEFINE(ABS, .inplace = 1, .infer = lathe__infer_like, .derive = derive_abs,
                .check = lathe__check_unary, .exact = exact, .cases = signed_cases);
LATHE_OP_DEFINE(TANH, .inplace = 1, .infer = lathe__infer_like, .derive = derive_tanh,
                .check = lathe__check_unary, .exact = exact, .cases = signed_cases);
LATHE_OP_DEFINE(ABS_BWD, .accumulates = 1, .infer = lathe__infer_pair, .check = lathe__check_binary,
                .exact = exact, .cases = bwd_cases);
LATHE_OP_DEFINE(TANH_BWD, .accumulates = 1, .infer = lathe__infer_pair,
                .check = lathe__check_binary, .exact = exact, .cases = bwd_cases);

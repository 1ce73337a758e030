/* SIGMOID and LOGSIGMOID. */
#include <math.h>

#include "graph/ops/rules.h"

double lathe__sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static void derive_sigmoid(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_op_attrs one_minus = {.alpha = -1.0, .beta = 1.0};
    const lathe_val y = n->out[0];
    const lathe_val u = lathe__emit_plain(t, LATHE_OP_SCALE, &one_minus, y, LATHE_NONE, n->label);
    const lathe_val slope = lathe__emit_plain(t, LATHE_OP_MUL, NULL, y, u, n->label);
    lathe__emit_one(t, n, LATHE_OP_MUL, NULL, dy, slope, n->in[0]);
}

static void derive_logsigmoid(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_op_attrs negate = {.alpha = -1.0};
    const lathe_val x = n->in[0];
    const lathe_val minus_x =
        lathe__emit_plain(t, LATHE_OP_SCALE, &negate, x, LATHE_NONE, n->label);
    const lathe_val s = lathe__emit_plain(t, LATHE_OP_SIGMOID, NULL, minus_x, LATHE_NONE, n->label);
    lathe__emit_one(t, n, LATHE_OP_MUL, NULL, dy, s, x);
}

static void exact_sigmoid(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = lathe__sigmoid(in[0][i]);
}

static void exact_logsigmoid(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = in[0][i] < -700.0 ? in[0][i] : -log1p(exp(-in[0][i]));
}

static const lathe_op_case sigmoid_cases[] = {
    LATHE_CASE("f32[1001]:2", "f32[1001]", 8, 0),
    LATHE_LAST_CASE,
};

static const lathe_op_case logsigmoid_cases[] = {
    LATHE_CASE("f32[1001]:2", "f32[1001]", 8, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(SIGMOID, .infer = lathe__infer_like, .derive = derive_sigmoid,
                .check = lathe__check_unary, .exact = exact_sigmoid, .cases = sigmoid_cases);
LATHE_OP_DEFINE(LOGSIGMOID, .infer = lathe__infer_like, .derive = derive_logsigmoid,
                .check = lathe__check_unary, .exact = exact_logsigmoid, .cases = logsigmoid_cases);

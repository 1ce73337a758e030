/* GELU_TANH, GELU and their derivatives. */
#include <math.h>

#include "graph/ops/rules.h"

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_GELU_TANH_BWD, NULL, dy, n->in[0], n->in[0]);
}

static const double gelu_factor = 0.79788456080286535588; /* sqrt(2 / pi) */

double lathe__gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(gelu_factor * (x + 0.044715 * x * x * x)));
}

double lathe__gelu_slope(double x)
{
    const double t = tanh(gelu_factor * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * gelu_factor * (1.0 + 3.0 * 0.044715 * x * x);
}

static void derive_erf(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_GELU_BWD, NULL, dy, n->in[0], n->in[0]);
}

/* The share of the standard normal distribution below x. */
static double normal(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

static double value(int32_t op, double a, double b)
{
    switch (op) {
    case LATHE_OP_GELU_TANH:
        return lathe__gelu(a);
    case LATHE_OP_GELU_TANH_BWD:
        return a * lathe__gelu_slope(b);
    case LATHE_OP_GELU:
        return a * normal(a);
    default: /* GELU_BWD; 1 / sqrt(2 pi) */
        return a * (normal(b) + b * exp(-0.5 * b * b) * 0.39894228040143267794);
    }
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = value(p->op, in[0][i], p->n_in > 1 ? in[1][i] : 0.0);
}

static const lathe_op_case forward_cases[] = {
    LATHE_CASE("c[5003]:2", "c[5003]", 4, 0),
    LATHE_LAST_CASE,
};

static const lathe_op_case backward_cases[] = {
    LATHE_CASE("c[5003] c[5003]:2", "c[5003]", 8, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(GELU_TANH, .cheap = 1, .infer = lathe__infer_like, .derive = derive,
                .check = lathe__check_alike, .exact = exact, .cases = forward_cases);
LATHE_OP_DEFINE(GELU_TANH_BWD, .accumulates = 1, .infer = lathe__infer_like,
                .check = lathe__check_alike, .exact = exact, .cases = backward_cases);
LATHE_OP_DEFINE(GELU, .cheap = 1, .infer = lathe__infer_like, .derive = derive_erf,
                .check = lathe__check_alike, .exact = exact, .cases = forward_cases);
LATHE_OP_DEFINE(GELU_BWD, .accumulates = 1, .infer = lathe__infer_pair, .check = lathe__check_alike,
                .exact = exact, .cases = backward_cases);

/* SWIGLU_CLAMPED and its derivative: the activation of gpt-oss (arXiv:2508.10925, section 2.2). */
#include <math.h>

#include "graph/ops/rules.h"

static int fits(const lathe_op_problem *p, int32_t x)
{
    const lathe_desc *d = lathe__in(p, x);
    return d != NULL && d->rank == 2 && lathe__computes(d->dtype) && d->dims[1] % 2 == 0 &&
           p->attrs.beta > 0.0;
}

static lathe_desc half_of(lathe_desc d)
{
    d.dims[1] /= 2;
    return d;
}

static lathe_status infer(lathe_op_problem *p)
{
    if (!fits(p, 0))
        return lathe__bad_inputs(p, "x c[N,2F], and a limit beta above 0");
    p->out[0] = half_of(p->in[0]);
    return LATHE_OK;
}

static lathe_status infer_bwd(lathe_op_problem *p)
{
    const lathe_desc y = fits(p, 1) ? half_of(p->in[1]) : p->in[0];
    if (!fits(p, 1) || !lathe__in(p, 0) || !lathe__same_shape(&p->in[0], &y))
        return lathe__bad_inputs(p, "dy c[N,F] and x c[N,2F]");
    p->out[0] = p->in[1];
    return LATHE_OK;
}

static lathe_status check(const lathe_op_problem *p)
{
    const int32_t back = p->op == LATHE_OP_SWIGLU_CLAMPED_BWD;
    const int64_t n = lathe_desc_count(&p->in[back]);
    if (!fits(p, back))
        return lathe__refuse_shape(p, "x must be [N, 2F], with a limit beta above 0");
    LATHE_TRY(lathe__check_in(p, back, LATHE__COMPUTE, n));
    if (back)
        LATHE_TRY(lathe__check_in(p, 0, p->in[1].dtype, n / 2));
    return lathe__check_out(p, 0, p->in[back].dtype, back ? n : n / 2);
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_SWIGLU_CLAMPED_BWD, &n->attrs, dy, n->in[0], n->in[0]);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int32_t back = p->op == LATHE_OP_SWIGLU_CLAMPED_BWD;
    const double alpha = p->attrs.alpha, beta = p->attrs.beta;
    for (int64_t i = 0; i < lathe_desc_count(&p->in[back]) / 2; i++) {
        const double gate = in[back][2 * i], up = in[back][2 * i + 1];
        const double g = fmin(gate, beta), u = fmax(fmin(up, beta), -beta);
        const double s = lathe__sigmoid(alpha * g);
        if (!back) {
            out[0][i] = g * s * (u + 1.0);
            continue;
        }
        const double dy = in[0][i];
        out[0][2 * i] = gate > beta ? 0.0 : dy * (u + 1.0) * s * (1.0 + alpha * g * (1.0 - s));
        out[0][2 * i + 1] = fabs(up) > beta ? 0.0 : dy * g * s;
    }
}

/* the limit lies where no noise is: in bf16 and f16 it would round to the value of an element */
#define SETTINGS .alpha = 1.702, .beta = 1.5001

static const lathe_op_case forward_cases[] = {
    LATHE_CASE_WITH("c[5,134]:2", "c[5,67]", 8, 0, SETTINGS),
    LATHE_CASE_WITH("c[301,66]:2", "c[301,33]", 8, 0, SETTINGS),
    LATHE_LAST_CASE,
};

static const lathe_op_case backward_cases[] = {
    LATHE_CASE_WITH("c[5,67] c[5,134]:2", "c[5,134]", 16, 0, SETTINGS),
    LATHE_CASE_WITH("c[301,33] c[301,66]:2", "c[301,66]", 16, 0, SETTINGS),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(SWIGLU_CLAMPED, .cheap = 1, .infer = infer, .derive = derive, .check = check,
                .exact = exact, .cases = forward_cases);
LATHE_OP_DEFINE(SWIGLU_CLAMPED_BWD, .accumulates = 1, .infer = infer_bwd, .check = check,
                .exact = exact, .cases = backward_cases);

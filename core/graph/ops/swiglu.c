/* SWIGLU and its derivative. */
#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    LATHE_TRY(lathe__infer_pair(p));
    return p->in[0].rank < 1 ? lathe__bad_inputs(p, "matrices") : LATHE_OK;
}

static lathe_status infer_bwd(lathe_op_problem *p)
{
    if (!lathe__in(p, 1))
        return lathe__bad_inputs(p, "its input");
    p->out[0] = p->out[1] = p->in[1];
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val in[3] = {dy, n->in[0], n->in[1]};
    lathe__emit(t, LATHE_OP_SWIGLU_BWD, NULL, in, 3, n->in, 3, 2, n->label);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = in[0][i] * lathe__sigmoid(in[0][i]) * in[1][i];
}

static void exact_bwd(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++) {
        const double dy = in[0][i], g = in[1][i], u = in[2][i], s = lathe__sigmoid(g);
        out[0][i] = dy * u * s * (1.0 + g * (1.0 - s));
        if (out[1] != NULL)
            out[1][i] = dy * g * s;
    }
}

static const lathe_op_case swiglu_cases[] = {
    LATHE_CASE("c[5,67]:2 c[5,67]", "c[5,67]", 4, 0),
    LATHE_LAST_CASE,
};

static const lathe_op_case swiglu_bwd_cases[] = {
    LATHE_CASE("c[5,67] c[5,67]:2 c[5,67]", "c[5,67] c[5,67]", 8, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(SWIGLU, .cheap = 1, .infer = infer, .derive = derive, .check = lathe__check_alike,
                .exact = exact, .cases = swiglu_cases);
LATHE_OP_DEFINE(SWIGLU_BWD, .accumulates = 1, .infer = infer_bwd, .check = lathe__check_alike,
                .exact = exact_bwd, .cases = swiglu_bwd_cases);

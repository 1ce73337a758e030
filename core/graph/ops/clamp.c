/* CLAMP and its derivative; the bounds are plus and minus a limit in device memory, or two
 * attributes. */
#include "graph/ops/rules.h"

/* Index of x among the inputs; the limit is the input after it. */
static int32_t x_of(const lathe_op_problem *p)
{
    return p->op == LATHE_OP_CLAMP ? 0 : 1;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val in[3] = {dy, n->in[0], n->in[1]};
    if (lathe__needs(t, n->in[0]))
        lathe__emit(t, LATHE_OP_CLAMP_BWD, &n->attrs, in, 3, n->in, 1, 1, n->label);
}

static lathe_status check(const lathe_op_problem *p)
{
    const int32_t x = x_of(p);
    const int64_t n = lathe_desc_count(&p->in[0]);
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n));
    if (x > 0)
        LATHE_TRY(lathe__check_in(p, x, p->in[0].dtype, n));
    if (lathe__in(p, x + 1)) {
        const int64_t limits = lathe_desc_count(&p->in[x + 1]);
        LATHE_TRY(lathe__check_in(p, x + 1, LATHE_F32, limits));
        if (p->attrs.start < 0 || p->attrs.start >= limits)
            return lathe__refuse_shape(p, "start is outside the limits");
    } else if (!(p->attrs.alpha <= p->attrs.beta)) {
        return lathe_error(LATHE_E_ARG, "%s: alpha %g is above beta %g", lathe__op_name(p),
                           p->attrs.alpha, p->attrs.beta);
    }
    return lathe__check_out(p, 0, p->in[0].dtype, n);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int32_t at = x_of(p);
    const double *limit = in[at + 1] != NULL ? &in[at + 1][p->attrs.start] : NULL;
    const double low = limit != NULL ? -*limit : p->attrs.alpha;
    const double high = limit != NULL ? *limit : p->attrs.beta;
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++) {
        const double x = in[at][i];
        if (at == 0)
            out[0][i] = x > high ? high : x < low ? low : x;
        else
            out[0][i] = x > high || x < low ? 0.0 : in[0][i];
    }
}

static const lathe_op_case cases[] = {
    LATHE_CASE_WITH("c[5003] f32[2]", "c[5003]", 0, 0, .start = 1),
    LATHE_CASE_WITH("c[67,3] -", "c[67,3]", 0, 0, .alpha = -0.25, .beta = 0.5),
    LATHE_LAST_CASE,
};
static const lathe_op_case bwd_cases[] = {
    LATHE_CASE_WITH("c[5003] c[5003] f32[2]", "c[5003]", 1, 0, .start = 1),
    LATHE_CASE_WITH("c[67,3] c[67,3] -", "c[67,3]", 1, 0, .alpha = -0.25, .beta = 0.5),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(CLAMP, .inplace = 1, .fixed_inputs = 2, .infer = lathe__infer_like,
                .derive = derive, .check = check, .exact = exact, .cases = cases);
LATHE_OP_DEFINE(CLAMP_BWD, .accumulates = 1, .infer = lathe__infer_like, .check = check,
                .exact = exact, .cases = bwd_cases);

/* CLAMP. */
#include "ir/ops/rules.h"

static lathe_status check(const lathe_op_problem *p)
{
    const int64_t n = lathe_desc_count(&p->in[0]), limits = lathe_desc_count(&p->in[1]);
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n));
    LATHE_TRY(lathe__check_in(p, 1, LATHE_F32, limits));
    if (p->attrs.start < 0 || p->attrs.start >= limits)
        return lathe__refuse_shape(p, "start is outside the limits");
    return lathe__check_out(p, 0, p->in[0].dtype, n);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const double limit = in[1][p->attrs.start];
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = in[0][i] > limit ? limit : in[0][i] < -limit ? -limit : in[0][i];
}

static const lathe_op_case cases[] = {
    LATHE_CASE_WITH("c[5003] f32[2]", "c[5003]", 0, 0, .start = 1),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(CLAMP, .inplace = 1, .infer = lathe__infer_like, .check = check, .exact = exact,
                .cases = cases);

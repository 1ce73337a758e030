/* APPLY_UPDATE, which changes a parameter, and UPDATE_SQUARES, the squared size of that change. */
#include "graph/ops/rules.h"

static lathe_status infer_squares(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0), *u = lathe__in(p, 1), *scalars = lathe__in(p, 2);
    if (!x || !u || !scalars || x->dtype != LATHE_F32 ||
        lathe_desc_count(x) != lathe_desc_count(u) || scalars->dtype != LATHE_F32)
        return lathe__bad_inputs(p, "p f32[..], u of its size, scalars f32[*]");
    p->out[0] = lathe_desc_1d(LATHE_F64, (lathe_desc_count(x) + 16383) / 16384);
    return LATHE_OK;
}

/* Checks the parameter, the change and the scalars, which both ops read. */
static lathe_status check_inputs(const lathe_op_problem *p)
{
    const int64_t n = lathe_desc_count(&p->in[0]), scalars = lathe_desc_count(&p->in[2]);
    LATHE_TRY(lathe__check_in(p, 0, LATHE_F32, n));
    LATHE_TRY(lathe__check_in(p, 1, LATHE__COMPUTE, n));
    LATHE_TRY(lathe__check_in(p, 2, LATHE_F32, scalars));
    if (p->attrs.start < 0 || p->attrs.start >= scalars)
        return lathe__refuse_shape(p, "start is outside the scalars");
    return LATHE_OK;
}

static lathe_status check_apply_update(const lathe_op_problem *p)
{
    LATHE_TRY(check_inputs(p));
    return lathe__check_out(p, 0, LATHE_F32, lathe_desc_count(&p->in[0]));
}

/* One sum per 16384 elements. */
static lathe_status check_update_squares(const lathe_op_problem *p)
{
    LATHE_TRY(check_inputs(p));
    return lathe__check_out(p, 0, LATHE_F64, (lathe_desc_count(&p->in[0]) + 16383) / 16384);
}

static void exact_update(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = in[0][i] -
                    in[2][p->attrs.start] * (p->attrs.alpha * in[1][i] + p->attrs.beta * in[0][i]);
}

static void exact_squares(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t e = 0; e < lathe_desc_count(&p->in[0]); e++) {
        const double d =
            in[2][p->attrs.start] * (p->attrs.alpha * in[1][e] + p->attrs.beta * in[0][e]);
        out[0][e / 16384] += d * d;
    }
}

static const lathe_op_case apply_update_cases[] = {
    LATHE_CASE_WITH("f32[5003] c[5003] f32[4]", "f32[5003]", 2, 0, .alpha = 0.75, .beta = -1.25,
                    .start = 1),
    LATHE_LAST_CASE,
};

static const lathe_op_case update_squares_cases[] = {
    LATHE_CASE_WITH("f32[16411] c[16411,1] f32[2]", "f64[2]", 0, 0, .alpha = 0.75, .beta = -1.25,
                    .start = 1),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(APPLY_UPDATE, .inplace = 1, .inplace_always = 1, .infer = lathe__infer_like,
                .check = check_apply_update, .exact = exact_update, .cases = apply_update_cases);
LATHE_OP_DEFINE(UPDATE_SQUARES, .infer = infer_squares, .check = check_update_squares,
                .exact = exact_squares, .cases = update_squares_cases);

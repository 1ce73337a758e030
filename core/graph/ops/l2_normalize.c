/* L2_NORMALIZE. */
#include <math.h>

#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    LATHE_TRY(lathe__infer_like(p));
    if (lathe_dtype_bytes(p->attrs.dtype) == 0)
        return lathe__bad_inputs(p, "a dtype to give");
    p->out[0].dtype = p->attrs.dtype;
    return LATHE_OK;
}

static lathe_status check(const lathe_op_problem *p)
{
    const int64_t n = lathe_desc_count(&p->in[0]);
    LATHE_TRY(lathe__check_in(p, 0, LATHE_F32, n));
    return lathe__check_out(p, 0, LATHE__COMPUTE, n);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    double squares = 0.0;
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++)
        squares += in[0][i] * in[0][i];
    const double norm = fmax(sqrt(squares), (double)p->attrs.eps);
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++)
        out[0][i] = in[0][i] / norm;
}

static const lathe_op_case cases[] = {
    LATHE_CASE_WITH("f32[6633]", "f32[6633]", 16, 0, .eps = 1e-3f, .dtype = LATHE_F32),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(L2_NORMALIZE, .infer = infer, .check = check, .exact = exact, .cases = cases);

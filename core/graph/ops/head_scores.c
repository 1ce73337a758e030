/* HEAD_SCORES: logits in f32 with the log of the sum of their exponentials. */
#include <math.h>

#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0);
    if (!x || x->rank != 2)
        return lathe__bad_inputs(p, "logits c[N,V]");
    p->out[0] = lathe__with_dtype(*x, LATHE_F32);
    p->out[1] = lathe_desc_1d(LATHE_F64, x->dims[0]);
    return LATHE_OK;
}

static lathe_status check(const lathe_op_problem *p)
{
    const int64_t n = lathe_desc_count(&p->in[0]);
    if (p->in[0].rank != 2 || n < 1)
        return lathe__refuse_shape(p, "logits must be [N, V], both at least 1");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n));
    LATHE_TRY(lathe__check_out(p, 0, LATHE_F32, n));
    return lathe__check_out(p, 1, LATHE_F64, p->in[0].dims[0]);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = p->in[0].dims[0], v = p->in[0].dims[1];
    const double cap = (double)p->attrs.softcap;
    for (int64_t r = 0; r < n; r++) {
        double top = -HUGE_VAL, sum = 0.0;
        for (int64_t i = r * v; i < (r + 1) * v; i++) {
            out[0][i] = cap > 0.0 ? cap * tanh(in[0][i] / cap) : in[0][i];
            top = fmax(top, out[0][i]);
        }
        for (int64_t i = r * v; i < (r + 1) * v; i++)
            sum += exp(out[0][i] - top);
        out[1][r] = top + log(sum);
    }
}

static const lathe_op_case cases[] = {
    LATHE_CASE("c[3,130]", "f32[3,130] f64[3]", 16, 1),
    LATHE_CASE_WITH("c[5,77]", "f32[5,77] f64[5]", 32, 1, .softcap = 2.0f),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(HEAD_SCORES, .infer = infer, .check = check, .exact = exact, .cases = cases);

/* SUM_SQUARES: sums of squares by segments, for norms. */
#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0), *segments = lathe__in(p, 1);
    if (!x || !segments || segments->dtype != LATHE_I64 || segments->rank != 2 ||
        segments->dims[1] != 2)
        return lathe__bad_inputs(p, "x [..], segments i64[S,2]");
    p->out[0] = lathe_desc_1d(LATHE_F64, segments->dims[0]);
    return LATHE_OK;
}

static lathe_status check(const lathe_op_problem *p)
{
    const int64_t n = lathe_desc_count(&p->out[0]);
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, lathe_desc_count(&p->in[0])));
    LATHE_TRY(lathe__check_in(p, 1, LATHE_I64, 2 * n));
    return lathe__check_out(p, 0, LATHE_F64, n);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t s = 0; s < p->out[0].dims[0]; s++) {
        const int64_t first = (int64_t)in[1][2 * s], n = (int64_t)in[1][2 * s + 1];
        for (int64_t e = first; e < first + n; e++)
            out[0][s] += in[0][e] * in[0][e];
    }
}

static const lathe_op_case cases[] = {
    LATHE_CASE("c[301] i64[4,2]:s", "f64[4]", 0, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(SUM_SQUARES, .infer = infer, .check = check, .exact = exact, .cases = cases);

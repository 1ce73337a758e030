/* CUMSUM over the last dim: y_i = x_0 + ... + x_i, or from the end with `inverse`. x_i is in y_j
 * for all j >= i, so dx_i = dy_i + dy_{i+1} + ...: CUMSUM in the other direction. */
#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    LATHE_TRY(lathe__infer_like(p));
    return p->in[0].rank < 1 ? lathe__bad_inputs(p, "rows") : LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_op_attrs attrs = {.inverse = !n->attrs.inverse};
    lathe__emit_one(t, n, LATHE_OP_CUMSUM, &attrs, dy, LATHE_NONE, n->in[0]);
}

static lathe_status check(const lathe_op_problem *p)
{
    if (p->in[0].rank < 1)
        return lathe__refuse_shape(p, "x must have rows");
    return lathe__check_unary(p);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t d = lathe__last_dim(&p->in[0]), n = lathe_desc_count(&p->in[0]);
    for (int64_t first = 0; first < n; first += d) {
        double sum = 0.0;
        for (int64_t j = 0; j < d; j++) {
            const int64_t i = first + (p->attrs.inverse ? d - 1 - j : j);
            sum += in[0][i];
            out[0][i] = sum;
        }
    }
}

/* 67 and 601 are no multiples of the width of a vector or a warp. */
static const lathe_op_case cases[] = {
    LATHE_CASE("c[9,67]", "c[9,67]", 67, 0),
    LATHE_CASE_WITH("c[3,601]", "c[3,601]", 601, 0, .inverse = 1),
    LATHE_CASE("c[5]", "c[5]", 5, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(CUMSUM, .accumulates = 1, .infer = infer, .derive = derive, .check = check,
                .exact = exact, .cases = cases);

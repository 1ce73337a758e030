/* TRANSPOSE of a matrix. */
#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0);
    if (!x || x->rank != 2)
        return lathe__bad_inputs(p, "a matrix");
    p->out[0] = lathe_desc_2d(x->dtype, x->dims[1], x->dims[0]);
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_TRANSPOSE, NULL, dy, LATHE_NONE, n->in[0]);
}

static lathe_status check(const lathe_op_problem *p)
{
    const lathe_desc *x = &p->in[0], *y = &p->out[0];
    if (x->rank != 2 || y->rank != 2 || x->dims[0] != y->dims[1] || x->dims[1] != y->dims[0])
        return lathe__refuse_shape(p, "x must be [R, S] and y [S, R]");
    LATHE_TRY(lathe__check_in(p, 0, x->dtype, lathe_desc_count(x)));
    return lathe__check_out(p, 0, x->dtype, lathe_desc_count(x));
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t rows = p->in[0].dims[0], cols = p->in[0].dims[1];
    for (int64_t i = 0; i < rows * cols; i++)
        out[0][i % cols * rows + i / cols] = in[0][i];
}

static const lathe_op_case cases[] = {
    LATHE_CASE("c[37,45]", "c[45,37]", 0, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(TRANSPOSE, .infer = infer, .derive = derive, .check = check, .exact = exact,
                .cases = cases);

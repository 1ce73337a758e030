/* GATHER and SCATTER: rows by index. Each is the derivative of the other. */
#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0), *index = lathe__in(p, 1);
    if (!x || !index || x->rank < 1 || !lathe__computes(x->dtype) || index->rank != 1 ||
        index->dtype != LATHE_I32)
        return lathe__bad_inputs(p, "x c[R,..] and an index i32[N]");
    p->out[0] = *x;
    if (p->op == LATHE_OP_GATHER) {
        p->out[0].dims[0] = index->dims[0];
    } else {
        if (x->dims[0] != index->dims[0] || p->attrs.count < 1)
            return lathe__bad_inputs(p, "x c[N,..], an index i32[N] and a count of rows to give");
        p->out[0].dims[0] = p->attrs.count;
    }
    return LATHE_OK;
}

static void derive_gather(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_op_attrs attrs = {.count = t->g->values[n->in[0]].desc.dims[0]};
    lathe__emit_one(t, n, LATHE_OP_SCATTER, &attrs, dy, n->in[1], n->in[0]);
}

static void derive_scatter(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_GATHER, NULL, dy, n->in[1], n->in[0]);
}

static lathe_status check(const lathe_op_problem *p)
{
    const lathe_desc *x = &p->in[0], *y = &p->out[0];
    const lathe_desc *picked = p->op == LATHE_OP_GATHER ? y : x;
    const int64_t n = lathe_desc_count(&p->in[1]);
    if (x->rank < 1 || y->rank != x->rank || x->dims[0] < 1 || y->dims[0] < 1 ||
        lathe_desc_count(x) / x->dims[0] != lathe_desc_count(y) / y->dims[0] ||
        picked->dims[0] != n)
        return lathe__refuse_shape(p, "rows of one length, as many as the index has");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, lathe_desc_count(x)));
    LATHE_TRY(lathe__check_in(p, 1, LATHE_I32, n));
    return lathe__check_out(p, 0, x->dtype, lathe_desc_count(y));
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = lathe_desc_count(&p->in[1]);
    const int64_t row = lathe_desc_count(&p->in[0]) / p->in[0].dims[0];
    for (int64_t i = 0; i < n * row; i++) {
        const int64_t r = (int64_t)in[1][i / row];
        if (r < 0)
            continue;
        if (p->op == LATHE_OP_GATHER)
            out[0][i] = in[0][r * row + i % row];
        else
            out[0][r * row + i % row] += in[0][i];
    }
}

static const lathe_op_case gather_cases[] = {
    LATHE_CASE("c[19,67] i32[31]:t19", "c[31,67]", 0, 0),
    LATHE_CASE("c[7] i32[13]:T7", "c[13]", 0, 0),
    LATHE_LAST_CASE,
};
static const lathe_op_case scatter_cases[] = {
    LATHE_CASE_WITH("c[31,67] i32[31]:t19", "c[19,67]", 3, 0, .count = 19),
    LATHE_CASE_WITH("c[300,8] i32[300]:T7", "c[9,8]", 40, 0, .count = 9),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(GATHER, .accumulates = 1, .infer = infer, .derive = derive_gather, .check = check,
                .exact = exact, .cases = gather_cases);
LATHE_OP_DEFINE(SCATTER, .accumulates = 1, .infer = infer, .derive = derive_scatter, .check = check,
                .exact = exact, .cases = scatter_cases);

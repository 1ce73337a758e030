/* SLICE, which copies rows of a tensor, and its derivative. */
#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_op_attrs *a = &p->attrs;
    const lathe_desc *x = lathe__in(p, 0);
    if (!x || x->rank < 1)
        return lathe__bad_inputs(p, "a tensor of rank 1 or more");
    p->out[0] = *x;
    if (p->op == LATHE_OP_SLICE) {
        if (a->start < 0 || a->count < 1 || a->start + a->count > x->dims[0])
            return lathe__bad_inputs(p, "start and count within the first dim");
        p->out[0].dims[0] = a->count;
    } else if (a->batch < a->start + a->count || x->dims[0] != a->count) {
        return lathe__bad_inputs(p, "dy of `count` rows, `batch` = rows of x");
    } else {
        p->out[0].dims[0] = a->batch;
    }
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe_op_attrs attrs = n->attrs;
    attrs.batch = t->g->values[n->in[0]].desc.dims[0];
    lathe__emit_one(t, n, LATHE_OP_SLICE_BWD, &attrs, dy, LATHE_NONE, n->in[0]);
}

/* Elements per row if `whole` [R,..] and `part` [count,..] fit attrs; else -1. */
static int64_t row_elements(const lathe_op_problem *p, const lathe_desc *whole,
                            const lathe_desc *part)
{
    const int64_t start = p->attrs.start, count = p->attrs.count;
    if (whole->rank < 1 || count < 1 || start < 0 || start + count > whole->dims[0])
        return -1;
    const int64_t row = lathe_desc_count(whole) / whole->dims[0];
    return lathe_desc_count(part) == count * row && part->dtype == whole->dtype ? row : -1;
}

static lathe_status check_accumulate(const lathe_op_problem *p, int32_t dtype)
{
    if (p->may_accumulate && !lathe__computes(dtype))
        return lathe_error(LATHE_E_UNSUPPORTED, "%s: %s cannot be added to", lathe__op_name(p),
                           lathe_dtype_name(dtype));
    return LATHE_OK;
}

static lathe_status check_slice(const lathe_op_problem *p)
{
    if (row_elements(p, &p->in[0], &p->out[0]) < 0)
        return lathe__refuse_shape(p, "y must be rows start .. start+count-1 of x, of its dtype");
    return check_accumulate(p, p->in[0].dtype);
}

static lathe_status check_slice_bwd(const lathe_op_problem *p)
{
    if (row_elements(p, &p->out[0], &p->in[0]) < 0)
        return lathe__refuse_shape(p, "dy must be rows start .. start+count-1 of dx, of its dtype");
    return check_accumulate(p, p->in[0].dtype);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int back = p->op == LATHE_OP_SLICE_BWD;
    const lathe_desc *whole = back ? &p->out[0] : &p->in[0];
    const int64_t row = lathe_desc_count(whole) / whole->dims[0], at = p->attrs.start * row;
    for (int64_t i = 0; i < p->attrs.count * row; i++)
        out[0][back ? at + i : i] = in[0][back ? i : at + i];
}

static const lathe_op_case slice_cases[] = {
    LATHE_CASE_WITH("c[11,7]", "c[4,7]", 0, 0, .start = 3, .count = 4),
    LATHE_LAST_CASE,
};

static const lathe_op_case slice_bwd_cases[] = {
    LATHE_CASE_WITH("c[4,7]", "c[11,7]", 0, 0, .start = 3, .count = 4),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(SLICE, .infer = infer, .derive = derive, .check = check_slice, .exact = exact,
                .cases = slice_cases);
LATHE_OP_DEFINE(SLICE_BWD, .accumulates = 1, .infer = infer, .check = check_slice_bwd,
                .exact = exact, .cases = slice_bwd_cases);

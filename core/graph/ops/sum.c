/* SUM, ROW_SUM, and BROADCAST, which is the derivative of both. */
#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0);
    const int64_t n = p->attrs.count;
    if (!x || x->dtype != LATHE_F32)
        return lathe__bad_inputs(p, "an f32 tensor");
    if (p->op == LATHE_OP_SUM) {
        p->out[0] = (lathe_desc){LATHE_F32, 0, {1, 1, 1, 1}};
    } else if (n < 1 || (p->op == LATHE_OP_ROW_SUM && lathe_desc_count(x) % n)) {
        return lathe__bad_inputs(p, "a count that divides the tensor");
    } else {
        const int64_t m =
            p->op == LATHE_OP_ROW_SUM ? lathe_desc_count(x) / n : lathe_desc_count(x) * n;
        p->out[0] = lathe_desc_1d(LATHE_F32, m);
    }
    return LATHE_OK;
}

static void derive_sum(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe_op_attrs attrs = n->attrs;
    attrs.count = lathe_desc_count(&t->g->values[n->in[0]].desc);
    lathe__emit_one(t, n, LATHE_OP_BROADCAST, &attrs, dy, LATHE_NONE, n->in[0]);
}

static void derive_row_sum(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_BROADCAST, &n->attrs, dy, LATHE_NONE, n->in[0]);
}

static lathe_status check_sum(const lathe_op_problem *p)
{
    LATHE_TRY(lathe__check_in(p, 0, LATHE_F32, lathe_desc_count(&p->in[0])));
    return lathe__check_out(p, 0, LATHE_F32, 1);
}

static lathe_status check_row_sum(const lathe_op_problem *p)
{
    if (p->attrs.count < 1)
        return lathe__refuse_shape(p, "count, the elements of a row, must be at least 1");
    const int64_t rows = lathe_desc_count(&p->out[0]);
    LATHE_TRY(lathe__check_in(p, 0, LATHE_F32, rows * p->attrs.count));
    return lathe__check_out(p, 0, LATHE_F32, rows);
}

static lathe_status check_broadcast(const lathe_op_problem *p)
{
    if (p->attrs.count < 1)
        return lathe__refuse_shape(p, "count, the copies of an element, must be at least 1");
    const int64_t n = lathe_desc_count(&p->in[0]);
    LATHE_TRY(lathe__check_in(p, 0, LATHE_F32, n));
    return lathe__check_out(p, 0, LATHE_F32, n * p->attrs.count);
}

static void exact_sum(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t per = p->op == LATHE_OP_ROW_SUM ? p->attrs.count : lathe_desc_count(&p->in[0]);
    for (int64_t i = 0; i < lathe_desc_count(&p->in[0]); i++)
        out[0][i / per] += in[0][i];
}

static void exact_broadcast(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t per = lathe_desc_count(&p->out[0]) / lathe_desc_count(&p->in[0]);
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = in[0][i / per];
}

static const lathe_op_case sum_cases[] = {
    LATHE_CASE("f32[40001]", "f32[]", 16, 0),
    LATHE_LAST_CASE,
};

static const lathe_op_case row_sum_cases[] = {
    LATHE_CASE_WITH("f32[1400]", "f32[200]", 7, 0, .count = 7),
    LATHE_LAST_CASE,
};

static const lathe_op_case broadcast_cases[] = {
    LATHE_CASE_WITH("f32[5]", "f32[35]", 0, 0, .count = 7),
    LATHE_CASE_WITH("f32[]", "f32[5003]", 0, 0, .count = 5003),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(SUM, .infer = infer, .derive = derive_sum, .check = check_sum, .exact = exact_sum,
                .cases = sum_cases);
LATHE_OP_DEFINE(ROW_SUM, .infer = infer, .derive = derive_row_sum, .check = check_row_sum,
                .exact = exact_sum, .cases = row_sum_cases);
LATHE_OP_DEFINE(BROADCAST, .infer = infer, .check = check_broadcast, .exact = exact_broadcast,
                .cases = broadcast_cases);

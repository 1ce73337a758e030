/* MATMUL. */
#include "ir/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *a = lathe__in(p, 0), *b = lathe__in(p, 1);
    if (!a || !b || a->rank != 2 || b->rank != 2 || a->dtype != b->dtype)
        return lathe__bad_inputs(p, "two matrices of one dtype");
    const int32_t ta = p->attrs.trans_a, tb = p->attrs.trans_b;
    if (a->dims[ta ? 0 : 1] != b->dims[tb ? 1 : 0])
        return lathe__bad_inputs(p, "matrices whose inner dims agree");
    p->out[0] = lathe_desc_2d(a->dtype, a->dims[ta ? 1 : 0], b->dims[tb ? 0 : 1]);
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    /* Y = s op(A) op(B). dA = s dY op(B)^T, transposed if A was transposed; dB likewise. */
    const lathe_val a = n->in[0], b = n->in[1];
    const int32_t ta = n->attrs.trans_a, tb = n->attrs.trans_b;
    lathe_op_attrs da = {.alpha = n->attrs.alpha}, db = {.alpha = n->attrs.alpha};
    if (ta) {
        da.trans_a = tb;
        da.trans_b = 1;
        lathe__emit_one(t, n, LATHE_OP_MATMUL, &da, b, dy, a);
    } else {
        da.trans_b = !tb;
        lathe__emit_one(t, n, LATHE_OP_MATMUL, &da, dy, b, a);
    }
    if (tb) {
        db.trans_a = 1;
        db.trans_b = ta;
        lathe__emit_one(t, n, LATHE_OP_MATMUL, &db, dy, a, b);
    } else {
        db.trans_a = !ta;
        lathe__emit_one(t, n, LATHE_OP_MATMUL, &db, a, dy, b);
    }
}

static double flops(const lathe_op_problem *p)
{
    return 2.0 * (double)lathe_desc_count(&p->in[0]) *
           (double)p->in[1].dims[p->attrs.trans_b ? 0 : 1];
}

static lathe_status check(const lathe_op_problem *p)
{
    const lathe_desc *a = &p->in[0], *b = &p->in[1];
    const int ta = p->attrs.trans_a != 0, tb = p->attrs.trans_b != 0;
    if (a->rank != 2 || b->rank != 2)
        return lathe__refuse_shape(p, "a and b must have two dims");
    const int64_t m = a->dims[ta], n = b->dims[!tb], kk = a->dims[!ta];
    if (b->dims[tb] != kk || m < 1 || n < 1 || kk < 1)
        return lathe__refuse_shape(p, "op(a) is [m, k] and op(b) is [k, n], all at least 1");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, m * kk));
    LATHE_TRY(lathe__check_in(p, 1, p->in[0].dtype, kk * n));
    LATHE_TRY(lathe__check_out(p, 0, LATHE__COMPUTE, m * n));
    if (a->dtype == LATHE_F32 && p->out[0].dtype != LATHE_F32)
        return lathe_error(LATHE_E_DTYPE, "matmul: f32 inputs give f32, not %s",
                           lathe_dtype_name(p->out[0].dtype));
    return LATHE_OK;
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int ta = p->attrs.trans_a, tb = p->attrs.trans_b;
    const int64_t m = p->out[0].dims[0], n = p->out[0].dims[1], terms = p->in[0].dims[ta ? 0 : 1];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < terms; k++)
                out[0][i * n + j] += p->attrs.alpha * in[0][ta ? k * m + i : i * terms + k] *
                                     in[1][tb ? j * terms + k : k * n + j];
}

static const lathe_op_case cases[] = {
    LATHE_CASE_WITH("c[23,41] c[41,31]", "c[23,31]", 41, 0, .alpha = 1.0),
    LATHE_CASE_WITH("c[41,23] c[41,31]", "c[23,31]", 41, 0, .alpha = -0.75, .trans_a = 1),
    LATHE_CASE_WITH("c[23,41] c[31,41]", "c[23,31]", 41, 0, .alpha = 0.5, .trans_b = 1),
    LATHE_CASE_WITH("c[41,23] c[31,41]", "c[23,31]", 41, 0, .alpha = 2.0, .trans_a = 1,
                    .trans_b = 1),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(MATMUL, .accumulates = 1, .infer = infer, .derive = derive, .flops = flops,
                .check = check, .exact = exact, .cases = cases);

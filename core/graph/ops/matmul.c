/* MATMUL, and BLOCK_MATMUL: one product for each block of columns. */
#include "graph/ops/rules.h"

/* Number of blocks: op(a) and op(b) of a block have these sizes. */
typedef struct shape {
    int64_t blocks, m, n, k;
} shape;

static int64_t blocks_of(int32_t op, const lathe_op_attrs *attrs)
{
    return op == LATHE_OP_BLOCK_MATMUL ? attrs->count : 1;
}

/* Gives the sizes of a product of two matrices; 0: they do not fit each other. */
static int32_t read_shape(const lathe_op_problem *p, shape *out)
{
    const lathe_desc *a = &p->in[0], *b = &p->in[1];
    const int64_t g = blocks_of(p->op, &p->attrs);
    if (a->rank != 2 || b->rank != 2 || g < 1 || a->dims[1] % g != 0 || b->dims[1] % g != 0)
        return 0;
    const int64_t sides[2][2] = {{a->dims[0], a->dims[1] / g}, {b->dims[0], b->dims[1] / g}};
    const int ta = p->attrs.trans_a != 0, tb = p->attrs.trans_b != 0;
    *out = (shape){g, sides[0][ta], sides[1][!tb], sides[0][!ta]};
    return sides[1][tb] == out->k;
}

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *a = lathe__in(p, 0), *b = lathe__in(p, 1);
    shape s;
    if (!a || !b || a->rank != 2 || b->rank != 2 || a->dtype != b->dtype)
        return lathe__bad_inputs(p, "two matrices of one dtype");
    if (!read_shape(p, &s))
        return lathe__bad_inputs(p, p->op == LATHE_OP_MATMUL
                                        ? "matrices whose inner dims agree"
                                        : "`count` column blocks each, whose inner dims agree");
    p->out[0] = lathe_desc_2d(a->dtype, s.m, s.blocks * s.n);
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    /* Y = s op(A) op(B). dA = s dY op(B)^T, transposed if A was transposed; dB likewise. */
    const lathe_val a = n->in[0], b = n->in[1];
    const int32_t ta = n->attrs.trans_a, tb = n->attrs.trans_b;
    lathe_op_attrs da = {.alpha = n->attrs.alpha, .count = n->attrs.count}, db = da;
    if (ta) {
        da.trans_a = tb;
        da.trans_b = 1;
        lathe__emit_one(t, n, n->op, &da, b, dy, a);
    } else {
        da.trans_b = !tb;
        lathe__emit_one(t, n, n->op, &da, dy, b, a);
    }
    if (tb) {
        db.trans_a = 1;
        db.trans_b = ta;
        lathe__emit_one(t, n, n->op, &db, dy, a, b);
    } else {
        db.trans_a = !ta;
        lathe__emit_one(t, n, n->op, &db, a, dy, b);
    }
}

static double flops(const lathe_op_problem *p)
{
    shape s;
    return read_shape(p, &s) ? 2.0 * (double)lathe_desc_count(&p->in[0]) * (double)s.n : 0.0;
}

static lathe_status check(const lathe_op_problem *p)
{
    shape s;
    if (p->in[0].rank != 2 || p->in[1].rank != 2)
        return lathe__refuse_shape(p, "a and b must have two dims");
    if (!read_shape(p, &s) || s.m < 1 || s.n < 1 || s.k < 1)
        return lathe__refuse_shape(
            p, p->op == LATHE_OP_MATMUL
                   ? "op(a) is [m, k] and op(b) is [k, n], all at least 1"
                   : "a and b have `count` column blocks of equal width; op(a) of a block is "
                     "[m, k] and op(b) is [k, n], all at least 1");
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, s.blocks * s.m * s.k));
    LATHE_TRY(lathe__check_in(p, 1, p->in[0].dtype, s.blocks * s.k * s.n));
    LATHE_TRY(lathe__check_out(p, 0, LATHE__COMPUTE, s.blocks * s.m * s.n));
    if (p->in[0].dtype == LATHE_F32 && p->out[0].dtype != LATHE_F32)
        return lathe_error(LATHE_E_DTYPE, "%s: f32 inputs give f32, not %s", lathe__op_name(p),
                           lathe_dtype_name(p->out[0].dtype));
    return LATHE_OK;
}

/* Element [i, j] of op(x), for the block whose columns begin at `from`. */
static double element(const double *x, const lathe_desc *d, int32_t trans, int64_t from, int64_t i,
                      int64_t j)
{
    return x[(trans ? j : i) * d->dims[1] + from + (trans ? i : j)];
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const lathe_desc *a = &p->in[0], *b = &p->in[1];
    shape s;
    if (!read_shape(p, &s))
        return;
    for (int64_t at = 0; at < s.blocks * s.m * s.n; at++) {
        const int64_t i = at / (s.blocks * s.n), col = at % (s.blocks * s.n);
        const int64_t g = col / s.n, j = col % s.n;
        for (int64_t k = 0; k < s.k; k++)
            out[0][at] += p->attrs.alpha *
                          element(in[0], a, p->attrs.trans_a, g * (a->dims[1] / s.blocks), i, k) *
                          element(in[1], b, p->attrs.trans_b, g * (b->dims[1] / s.blocks), k, j);
    }
}

static const lathe_op_case cases[] = {
    LATHE_CASE_WITH("c[23,41] c[41,31]", "c[23,31]", 41, 0, .alpha = 1.0),
    LATHE_CASE_WITH("c[41,23] c[41,31]", "c[23,31]", 41, 0, .alpha = -0.75, .trans_a = 1),
    LATHE_CASE_WITH("c[23,41] c[31,41]", "c[23,31]", 41, 0, .alpha = 0.5, .trans_b = 1),
    LATHE_CASE_WITH("c[41,23] c[31,41]", "c[23,31]", 41, 0, .alpha = 2.0, .trans_a = 1,
                    .trans_b = 1),
    LATHE_LAST_CASE,
};

/* More rows, columns and terms than a tile of a kernel, and none a multiple of its sides. */
static const lathe_op_case block_cases[] = {
    LATHE_CASE_WITH("c[71,20] c[4,20]", "c[71,20]", 4, 0, .alpha = 1.0, .count = 5),
    LATHE_CASE_WITH("c[9,66] c[22,201]", "c[9,201]", 22, 0, .alpha = -0.75, .count = 3),
    LATHE_CASE_WITH("c[71,18] c[71,21]", "c[6,21]", 71, 0, .alpha = 2.0, .trans_a = 1, .count = 3),
    LATHE_CASE_WITH("c[9,146] c[5,146]", "c[9,10]", 73, 0, .alpha = 1.0, .trans_b = 1, .count = 2),
    LATHE_CASE_WITH("c[7,12] c[3,14]", "c[6,6]", 7, 0, .alpha = 0.5, .trans_a = 1, .trans_b = 1,
                    .count = 2),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(MATMUL, .accumulates = 1, .infer = infer, .derive = derive, .flops = flops,
                .check = check, .exact = exact, .cases = cases);
LATHE_OP_DEFINE(BLOCK_MATMUL, .accumulates = 1, .infer = infer, .derive = derive, .flops = flops,
                .check = check, .exact = exact, .cases = block_cases);

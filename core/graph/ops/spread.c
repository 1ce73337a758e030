/* Broadcasts of a vector over a matrix, BROADCAST_ROW and BROADCAST_COLUMN, and the sums SUM_ROWS
 * and SUM_COLUMNS. A broadcast and its sum are each other's derivatives. */
#include "graph/ops/rules.h"

static int32_t is_sum(const lathe_op_problem *p)
{
    return p->op == LATHE_OP_SUM_ROWS || p->op == LATHE_OP_SUM_COLUMNS;
}

/* Whether the vector has one element per column of the matrix. */
static int32_t is_row(const lathe_op_problem *p)
{
    return p->op == LATHE_OP_BROADCAST_ROW || p->op == LATHE_OP_SUM_ROWS;
}

static lathe_status infer(lathe_op_problem *p)
{
    const lathe_desc *x = lathe__in(p, 0);
    const int64_t count = p->attrs.count;
    if (is_sum(p)) {
        if (!x || x->rank != 2)
            return lathe__bad_inputs(p, "a matrix");
        p->out[0] = lathe_desc_1d(LATHE_F32, x->dims[is_row(p) ? 1 : 0]);
        return LATHE_OK;
    }
    if (!x || x->rank != 1 || x->dtype != LATHE_F32 || count < 1 ||
        !lathe__computes(p->attrs.dtype))
        return lathe__bad_inputs(p, "a vector f32[*], a count of at least 1 and a dtype to give");
    p->out[0] = is_row(p) ? lathe_desc_2d(p->attrs.dtype, count, x->dims[0])
                          : lathe_desc_2d(p->attrs.dtype, x->dims[0], count);
    return LATHE_OK;
}

static void derive_broadcast(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const int32_t op = n->op == LATHE_OP_BROADCAST_ROW ? LATHE_OP_SUM_ROWS : LATHE_OP_SUM_COLUMNS;
    lathe__emit_one(t, n, op, NULL, dy, LATHE_NONE, n->in[0]);
}

static void derive_sum(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const int32_t rows = n->op == LATHE_OP_SUM_ROWS;
    const lathe_desc *x = &t->g->values[n->in[0]].desc;
    const lathe_op_attrs attrs = {.count = x->dims[rows ? 0 : 1], .dtype = x->dtype};
    lathe__emit_one(t, n, rows ? LATHE_OP_BROADCAST_ROW : LATHE_OP_BROADCAST_COLUMN, &attrs, dy,
                    LATHE_NONE, n->in[0]);
}

static lathe_status check(const lathe_op_problem *p)
{
    const lathe_desc *matrix = is_sum(p) ? &p->in[0] : &p->out[0];
    if (matrix->rank != 2)
        return lathe__refuse_shape(p, is_sum(p) ? "x must be a matrix" : "y must be a matrix");
    const int64_t n = lathe_desc_count(matrix), d = matrix->dims[is_row(p) ? 1 : 0];
    if (is_sum(p)) {
        LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n));
        return lathe__check_out(p, 0, LATHE_F32, d);
    }
    LATHE_TRY(lathe__check_in(p, 0, LATHE_F32, d));
    return lathe__check_out(p, 0, LATHE__COMPUTE, n);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const lathe_desc *matrix = is_sum(p) ? &p->in[0] : &p->out[0];
    for (int64_t i = 0; i < lathe_desc_count(matrix); i++) {
        const int64_t at = is_row(p) ? i % matrix->dims[1] : i / matrix->dims[1];
        if (is_sum(p))
            out[0][at] += in[0][i];
        else
            out[0][i] = in[0][at];
    }
}

static const lathe_op_case row_cases[] = {
    LATHE_CASE_WITH("f32[37]", "c[13,37]", 0, 0, .count = 13, .dtype = LATHE_ABSENT),
    LATHE_CASE_WITH("f32[64]", "c[5,64]", 0, 0, .count = 5, .dtype = LATHE_ABSENT),
    LATHE_LAST_CASE,
};
static const lathe_op_case column_cases[] = {
    LATHE_CASE_WITH("f32[37]", "c[37,13]", 0, 0, .count = 13, .dtype = LATHE_ABSENT),
    LATHE_CASE_WITH("f32[1]", "c[1,5000]", 0, 0, .count = 5000, .dtype = LATHE_ABSENT),
    LATHE_LAST_CASE,
};
static const lathe_op_case sum_rows_cases[] = {
    LATHE_CASE("c[301,37]", "f32[37]", 301, 0),
    LATHE_CASE("c[1,5]", "f32[5]", 1, 0),
    LATHE_LAST_CASE,
};
static const lathe_op_case sum_columns_cases[] = {
    LATHE_CASE("c[37,301]", "f32[37]", 301, 0),
    LATHE_CASE("c[5,1]", "f32[5]", 1, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(BROADCAST_ROW, .accumulates = 1, .infer = infer, .derive = derive_broadcast,
                .check = check, .exact = exact, .cases = row_cases);
LATHE_OP_DEFINE(BROADCAST_COLUMN, .accumulates = 1, .infer = infer, .derive = derive_broadcast,
                .check = check, .exact = exact, .cases = column_cases);
LATHE_OP_DEFINE(SUM_ROWS, .accumulates = 1, .param_outputs = 1, .infer = infer,
                .derive = derive_sum, .check = check, .exact = exact, .cases = sum_rows_cases);
LATHE_OP_DEFINE(SUM_COLUMNS, .accumulates = 1, .param_outputs = 1, .infer = infer,
                .derive = derive_sum, .check = check, .exact = exact, .cases = sum_columns_cases);

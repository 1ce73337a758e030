/* Elementwise arithmetic: ADD, SUB, MUL, DIV, SCALE, SCALE_BY, LINCOMB. */
#include "graph/ops/rules.h"

static lathe_status infer_lincomb(lathe_op_problem *p)
{
    if (!lathe__in(p, 0) || !lathe__in(p, 1) || !lathe__same_shape(&p->in[0], &p->in[1]))
        return lathe__bad_inputs(p, "two tensors of one shape");
    p->out[0] = p->in[0];
    return LATHE_OK;
}

static void derive_add(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__add_to_grad(t, n->in[0], dy, n->label);
    lathe__add_to_grad(t, n->in[1], dy, n->label);
}

static void derive_sub(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_op_attrs minus = {.alpha = -1.0};
    lathe__add_to_grad(t, n->in[0], dy, n->label);
    lathe__emit_one(t, n, LATHE_OP_SCALE, &minus, dy, LATHE_NONE, n->in[1]);
}

static void derive_mul(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_MUL, NULL, dy, n->in[1], n->in[0]);
    lathe__emit_one(t, n, LATHE_OP_MUL, NULL, dy, n->in[0], n->in[1]);
}

/* With y = a / b: dy = da / b - y db / b. */
static void derive_div(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_op_attrs minus = {.alpha = -1.0};
    const lathe_val b = n->in[1];
    lathe__emit_one(t, n, LATHE_OP_DIV, NULL, dy, b, n->in[0]);
    if (!lathe__needs(t, b))
        return;
    lathe_val g = lathe__emit_plain(t, LATHE_OP_DIV, NULL, dy, b, n->label);
    g = lathe__emit_plain(t, LATHE_OP_MUL, NULL, g, n->out[0], n->label);
    lathe__emit_one(t, n, LATHE_OP_SCALE, &minus, g, LATHE_NONE, b);
}

static void derive_scale(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe_op_attrs attrs = n->attrs;
    attrs.beta = 0.0;
    lathe__emit_one(t, n, LATHE_OP_SCALE, &attrs, dy, LATHE_NONE, n->in[0]);
}

static void derive_scale_by(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__emit_one(t, n, LATHE_OP_SCALE_BY, &n->attrs, dy, n->in[1], n->in[0]);
}

static void derive_lincomb(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val y = n->in[1];
    const lathe_op_attrs alpha = {.alpha = n->attrs.alpha}, beta = {.alpha = n->attrs.beta};
    lathe__emit_one(t, n, LATHE_OP_SCALE, &alpha, dy, LATHE_NONE, n->in[0]);
    if (lathe__needs(t, y))
        dy = lathe__as_dtype(t, dy, t->g->values[y].desc.dtype, n->label);
    lathe__emit_one(t, n, LATHE_OP_SCALE, &beta, dy, LATHE_NONE, y);
}

/* The two inputs may have different dtypes; the output has the dtype of one of them. */
static lathe_status check_lincomb(const lathe_op_problem *p)
{
    const int64_t n = lathe_desc_count(&p->in[0]);
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n));
    LATHE_TRY(lathe__check_in(p, 1, LATHE__COMPUTE, n));
    return lathe__check_out(p, 0,
                            p->out[0].dtype == p->in[1].dtype ? p->in[1].dtype : p->in[0].dtype, n);
}

static lathe_status check_scale_by(const lathe_op_problem *p)
{
    LATHE_TRY(lathe__check_unary(p));
    const int64_t n = lathe_desc_count(&p->in[1]);
    LATHE_TRY(lathe__check_in(p, 1, LATHE_F32, n));
    return p->attrs.start >= 0 && p->attrs.start < n
               ? LATHE_OK
               : lathe__refuse_shape(p, "start is outside the scalars");
}

static void exact_add(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = in[0][i] + in[1][i];
}

static void exact_sub(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = in[0][i] - in[1][i];
}

static void exact_mul(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = in[0][i] * in[1][i];
}

static void exact_div(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = in[0][i] / in[1][i];
}

static void exact_scale(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = p->attrs.alpha * in[0][i] + p->attrs.beta;
}

static void exact_scale_by(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = in[0][i] * in[1][p->attrs.start];
}

static void exact_lincomb(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = p->attrs.alpha * in[0][i] + p->attrs.beta * in[1][i];
}

static const lathe_op_case add_cases[] = {
    LATHE_CASE("c[7,33] c[7,33]", "c[7,33]", 1, 0),
    LATHE_CASE("c[40003] c[40003]", "c[40003]", 1, 0),
    LATHE_LAST_CASE,
};

static const lathe_op_case sub_cases[] = {
    LATHE_CASE("c[1025] c[1025]", "c[1025]", 1, 0),
    LATHE_LAST_CASE,
};

static const lathe_op_case mul_cases[] = {
    LATHE_CASE("c[1025] c[1025]", "c[1025]", 1, 0),
    LATHE_LAST_CASE,
};

static const lathe_op_case div_cases[] = {
    LATHE_CASE("c[1025] c[1025]:+", "c[1025]", 1, 0),
    LATHE_CASE("c[7,3] c[7,3]:+", "c[7,3]", 1, 0),
    LATHE_LAST_CASE,
};
static const lathe_op_case scale_cases[] = {
    LATHE_CASE_WITH("c[1025]", "c[1025]", 1, 0, .alpha = 0.75, .beta = -1.25),
    LATHE_LAST_CASE,
};

static const lathe_op_case scale_by_cases[] = {
    LATHE_CASE_WITH("f32[1025] f32[3]", "f32[1025]", 1, 0, .start = 2),
    LATHE_LAST_CASE,
};

static const lathe_op_case lincomb_cases[] = {
    LATHE_CASE_WITH("c[1025] c[1025]", "c[1025]", 2, 0, .alpha = 0.75, .beta = -1.25),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(ADD, .accumulates = 1, .inplace = 3, .infer = lathe__infer_pair,
                .derive = derive_add, .check = lathe__check_binary, .exact = exact_add,
                .cases = add_cases);
LATHE_OP_DEFINE(SUB, .inplace = 1, .infer = lathe__infer_pair, .derive = derive_sub,
                .check = lathe__check_binary, .exact = exact_sub, .cases = sub_cases);
LATHE_OP_DEFINE(MUL, .inplace = 1, .infer = lathe__infer_pair, .derive = derive_mul,
                .check = lathe__check_binary, .exact = exact_mul, .cases = mul_cases);
LATHE_OP_DEFINE(DIV, .inplace = 1, .infer = lathe__infer_pair, .derive = derive_div,
                .check = lathe__check_binary, .exact = exact_div, .cases = div_cases);
LATHE_OP_DEFINE(SCALE, .accumulates = 1, .inplace = 1, .infer = lathe__infer_like,
                .derive = derive_scale, .check = lathe__check_unary, .exact = exact_scale,
                .cases = scale_cases);
LATHE_OP_DEFINE(SCALE_BY, .inplace = 1, .reads_anywhere = 2, .fixed_inputs = 2,
                .infer = lathe__infer_like, .derive = derive_scale_by, .check = check_scale_by,
                .exact = exact_scale_by, .cases = scale_by_cases);
LATHE_OP_DEFINE(LINCOMB, .inplace = 3, .infer = infer_lincomb, .derive = derive_lincomb,
                .check = check_lincomb, .exact = exact_lincomb, .cases = lincomb_cases);

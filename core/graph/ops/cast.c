/* CAST and COPY. */
#include "graph/ops/rules.h"

static lathe_status infer_cast(lathe_op_problem *p)
{
    LATHE_TRY(lathe__infer_like(p));
    if (lathe_dtype_bytes(p->attrs.dtype) == 0)
        return lathe__bad_inputs(p, "a dtype to give");
    p->out[0].dtype = p->attrs.dtype;
    return LATHE_OK;
}

static void derive_cast(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe_op_attrs attrs = n->attrs;
    if (!lathe__needs(t, n->in[0]))
        return;
    attrs.dtype = t->g->values[n->in[0]].desc.dtype;
    lathe__emit_one(t, n, LATHE_OP_CAST, &attrs, dy, LATHE_NONE, n->in[0]);
}

static void derive_copy(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe__add_to_grad(t, n->in[0], dy, n->label);
}

static lathe_status check_cast(const lathe_op_problem *p)
{
    const int64_t n = lathe_desc_count(&p->in[0]);
    const int32_t from = p->in[0].dtype, to = p->out[0].dtype;
    if (!lathe__computes(from) || !lathe__computes(to))
        return lathe_error(LATHE_E_UNSUPPORTED, "cast: %s to %s; f32, bf16 and f16 only",
                           lathe_dtype_name(from), lathe_dtype_name(to));
    return lathe__check_out(p, 0, to, n);
}

static lathe_status check_copy(const lathe_op_problem *p)
{
    const int32_t dtype = p->in[0].dtype;
    if (p->may_accumulate && !lathe__computes(dtype))
        return lathe_error(LATHE_E_UNSUPPORTED, "copy: %s cannot be added to",
                           lathe_dtype_name(dtype));
    LATHE_TRY(lathe__check_in(p, 0, dtype, lathe_desc_count(&p->in[0])));
    return lathe__check_out(p, 0, dtype, lathe_desc_count(&p->in[0]));
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    for (int64_t i = 0; i < lathe_desc_count(&p->out[0]); i++)
        out[0][i] = in[0][i];
}

static const lathe_op_case cast_cases[] = {
    LATHE_CASE_WITH("c[1025]", "f32[1025]", 0, 0, .dtype = LATHE_F32),
    LATHE_CASE_WITH("f32[1025]", "c[1025]", 0, 0, .dtype = LATHE_ABSENT), /* set to c below */
    LATHE_LAST_CASE,
};

static const lathe_op_case copy_cases[] = {
    LATHE_CASE("c[40003]", "c[40003]", 0, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(CAST, .infer = infer_cast, .derive = derive_cast, .check = check_cast,
                .exact = exact, .cases = cast_cases);
LATHE_OP_DEFINE(COPY, .infer = lathe__infer_like, .derive = derive_copy, .check = check_copy,
                .exact = exact, .cases = copy_cases);

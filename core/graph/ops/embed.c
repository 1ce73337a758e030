/* EMBED, which copies rows of a matrix by token, and its derivative. */
#include "graph/ops/rules.h"

static lathe_status infer(lathe_op_problem *p)
{
    const int32_t forward = p->op == LATHE_OP_EMBED;
    const lathe_desc *ids = lathe__in(p, forward ? 0 : 1), *w = lathe__in(p, forward ? 1 : 0);
    if (!ids || !w || ids->dtype != LATHE_I32 || w->rank != 2)
        return lathe__bad_inputs(p, "token ids i32[N] and a matrix");
    /* EMBED_BWD does not know V; the derivative sets its output */
    p->out[0] = lathe_desc_2d(w->dtype, lathe_desc_count(ids), w->dims[1]);
    return LATHE_OK;
}

static void derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val in[2] = {dy, n->in[0]};
    if (lathe__needs(t, n->in[1]))
        lathe__emit(t, LATHE_OP_EMBED_BWD, NULL, in, 2, &n->in[1], 1, 1, n->label);
}

static lathe_status check_forward(const lathe_op_problem *p)
{
    if (p->in[1].rank != 2 || p->in[1].dims[1] < 1)
        return lathe__refuse_shape(p, "W must be [V, C]");
    const int64_t n = lathe_desc_count(&p->in[0]), c = p->in[1].dims[1];
    LATHE_TRY(lathe__check_in(p, 0, LATHE_I32, n));
    LATHE_TRY(lathe__check_in(p, 1, LATHE__COMPUTE, p->in[1].dims[0] * c));
    return lathe__check_out(p, 0, p->in[1].dtype, n * c);
}

static lathe_status check_backward(const lathe_op_problem *p)
{
    if (p->out[0].rank != 2 || p->out[0].dims[1] < 1)
        return lathe__refuse_shape(p, "dW must be [V, C]");
    const int64_t n = lathe_desc_count(&p->in[1]), c = p->out[0].dims[1];
    LATHE_TRY(lathe__check_in(p, 0, LATHE__COMPUTE, n * c));
    LATHE_TRY(lathe__check_in(p, 1, LATHE_I32, n));
    return lathe__check_out(p, 0, LATHE_F32, p->out[0].dims[0] * c);
}

static void exact(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = lathe_desc_count(&p->in[0]), w = p->in[1].dims[1];
    for (int64_t i = 0; i < n * w; i++)
        out[0][i] = in[1][(int64_t)in[0][i / w] * w + i % w];
}

static void exact_bwd(const lathe_op_problem *p, double *const *in, double *const *out)
{
    const int64_t n = lathe_desc_count(&p->in[1]), w = p->out[0].dims[1];
    for (int64_t i = 0; i < n * w; i++)
        out[0][(int64_t)in[1][i / w] * w + i % w] += in[0][i];
}

static const lathe_op_case embed_cases[] = {
    LATHE_CASE("i32[31]:t53 c[53,77]", "c[31,77]", 0, 0),
    LATHE_LAST_CASE,
};

static const lathe_op_case embed_bwd_cases[] = {
    LATHE_CASE("c[301,13] i32[301]:t53", "f32[60,13]", 301, 0),
    LATHE_LAST_CASE,
};

LATHE_OP_DEFINE(EMBED, .infer = infer, .derive = derive, .check = check_forward, .exact = exact,
                .cases = embed_cases);
LATHE_OP_DEFINE(EMBED_BWD, .accumulates = 1, .param_outputs = 1, .infer = infer,
                .check = check_backward, .exact = exact_bwd, .cases = embed_bwd_cases);

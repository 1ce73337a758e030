/* The logits of the head over the vocabulary: shapes, operations, the exact numbers. */
#include "graph/ops/head_terms.h"

lathe_status lathe__head_infer(const lathe_op_problem *p, lathe__head_inputs h)
{
    const lathe_desc *x = lathe__in(p, h.x), *u = lathe__in(p, h.u), *v = lathe__in(p, h.u + 1);
    const lathe_desc *s = lathe__in(p, h.u + 2);
    const int64_t vocabulary = p->in[h.x + 1].dims[0];
    if (!u && !v && !s)
        return LATHE_OK;
    if (!u || !v || u->rank != 2 || v->rank != 2 || u->dims[1] != v->dims[1] ||
        u->dtype != x->dtype || v->dtype != x->dtype || u->dims[0] != x->dims[0] ||
        v->dims[0] != vocabulary)
        return lathe__bad_inputs(p, "u c[N,R] and v c[V,R] beside x and W");
    if (s && !lathe__is_vector(s, vocabulary))
        return lathe__bad_inputs(p, "s f32[V] beside u and v");
    return LATHE_OK;
}

void lathe__head_infer_gradients(lathe_op_problem *p, lathe__head_inputs h)
{
    const lathe_desc *u = lathe__in(p, h.u), *s = lathe__in(p, h.u + 2);
    p->out[LATHE__HEAD_DX] = p->in[h.x];
    p->out[LATHE__HEAD_DW] = lathe__with_dtype(p->in[h.x + 1], LATHE_F32);
    if (u) {
        p->out[LATHE__HEAD_DU] = *u;
        p->out[LATHE__HEAD_DV] = lathe__with_dtype(p->in[h.u + 1], LATHE_F32);
    }
    if (s)
        p->out[LATHE__HEAD_DS] = *s;
}

void lathe__head_derive(lathe_tape *t, const lathe_ir_node *n, lathe_val dy, int32_t op,
                        int32_t n_first, lathe__head_inputs h)
{
    const lathe_val u = n->in[h.u], v = n->in[h.u + 1], s = n->in[h.u + 2], w = n->in[h.x + 1];
    const lathe_val targets[LATHE__HEAD_OUTPUTS] = {n->out[0], n->in[h.x], w, u, s, v};
    const int32_t n_in = lathe_op_info_get(op)->n_in;
    lathe_val in[LATHE_OP_MAX_IN];
    for (int32_t i = 0; i < n_in; i++)
        in[i] = i < n_first ? n->in[i] : i == n_first ? dy : n->in[i - 1];
    /* output 0 repeats the forward's result; it is not a gradient */
    t->g->values[n->out[0]].needs_grad = 0;
    lathe__emit(t, op, &n->attrs, in, n_in, targets, 3, LATHE__HEAD_OUTPUTS, n->label);
    t->g->values[n->out[0]].needs_grad = 1;
}

/* Operations of u v^T. */
static double flops_more(const lathe_op_problem *p, lathe__head_inputs h)
{
    const lathe_desc *u = lathe__in(p, h.u);
    return u ? 2.0 * (double)lathe_desc_count(u) * (double)p->in[h.x + 1].dims[0] : 0.0;
}

/* Operations of x W^T. */
static double flops_first(const lathe_op_problem *p, lathe__head_inputs h)
{
    return 2.0 * (double)lathe_desc_count(&p->in[h.x]) * (double)p->in[h.x + 1].dims[0];
}

double lathe__head_flops(const lathe_op_problem *p, lathe__head_inputs h)
{
    return flops_first(p, h) + flops_more(p, h);
}

double lathe__head_flops_bwd(const lathe_op_problem *p, lathe__head_inputs h)
{
    const int has_dw = lathe__out(p, LATHE__HEAD_DW) != NULL;
    const int has_du = lathe__out(p, LATHE__HEAD_DU) != NULL;
    const int has_dv = lathe__out(p, LATHE__HEAD_DV) != NULL;
    return flops_first(p, h) * (2.0 + has_dw) + flops_more(p, h) * (1.0 + has_du + has_dv);
}

lathe_status lathe__head_check(const lathe_op_problem *p, lathe__head_inputs h, int64_t n,
                               int64_t *out_r)
{
    const lathe_desc *w = &p->in[h.x + 1], *u = lathe__in(p, h.u), *v = lathe__in(p, h.u + 1);
    const lathe_desc *s = lathe__in(p, h.u + 2);
    const int32_t dtype = p->in[h.x].dtype;
    const int64_t vocabulary = w->dims[0];
    *out_r = 0;
    if (n < 1)
        return lathe__refuse_shape(p, "there must be at least one row");
    if (u || v || s) {
        if (!u || !v || v->rank != 2 || v->dims[1] < 1 || v->dims[0] != vocabulary)
            return lathe__refuse_shape(p, "u must be [N, R] and v [V, R]");
        *out_r = v->dims[1];
        LATHE_TRY(lathe__check_in(p, h.u, dtype, n * *out_r));
        LATHE_TRY(lathe__check_in(p, h.u + 1, dtype, vocabulary * *out_r));
    }
    if (s)
        LATHE_TRY(lathe__check_in(p, h.u + 2, LATHE_F32, vocabulary));
    LATHE_TRY(lathe__check_in(p, h.x, LATHE__COMPUTE, n * w->dims[1]));
    return lathe__check_in(p, h.x + 1, dtype, vocabulary * w->dims[1]);
}

lathe_status lathe__head_check_gradients(const lathe_op_problem *p, lathe__head_inputs h, int64_t n,
                                         int64_t r)
{
    const int64_t vocabulary = p->in[h.x + 1].dims[0], c = p->in[h.x + 1].dims[1];
    const int32_t dtype = p->in[h.x].dtype;
    if (lathe__out(p, LATHE__HEAD_DX))
        LATHE_TRY(lathe__check_out(p, LATHE__HEAD_DX, dtype, n * c));
    if (lathe__out(p, LATHE__HEAD_DW))
        LATHE_TRY(lathe__check_out(p, LATHE__HEAD_DW, LATHE_F32, vocabulary * c));
    if ((lathe__out(p, LATHE__HEAD_DU) || lathe__out(p, LATHE__HEAD_DV)) && r == 0)
        return lathe__refuse_shape(p, "there is a gradient of u or v, and no u");
    if (lathe__out(p, LATHE__HEAD_DV))
        LATHE_TRY(lathe__check_out(p, LATHE__HEAD_DV, LATHE_F32, vocabulary * r));
    if (lathe__out(p, LATHE__HEAD_DU))
        LATHE_TRY(lathe__check_out(p, LATHE__HEAD_DU, dtype, n * r));
    if (lathe__out(p, LATHE__HEAD_DS) && !lathe__in(p, h.u + 2))
        return lathe__refuse_shape(p, "there is a gradient of s, and no s");
    return lathe__out(p, LATHE__HEAD_DS)
               ? lathe__check_out(p, LATHE__HEAD_DS, LATHE_F32, vocabulary)
               : LATHE_OK;
}

/* ---- the exact numbers ---- */

static int64_t rank_of(const lathe_op_problem *p, lathe__head_inputs h)
{
    return lathe__in(p, h.u) ? p->in[h.u].dims[1] : 0;
}

/* The factor of column v. */
static double factor(const lathe_op_problem *p, double *const *in, lathe__head_inputs h, int64_t v)
{
    return lathe__in(p, h.u + 2) ? in[h.u + 2][v] : 1.0;
}

/* Logit v of row r before the factor. */
static double product(const lathe_op_problem *p, double *const *in, lathe__head_inputs h, int64_t r,
                      int64_t v)
{
    const int64_t width = p->in[h.x + 1].dims[1], rank = rank_of(p, h);
    double sum = 0.0;
    for (int64_t i = 0; i < width; i++)
        sum += in[h.x][r * width + i] * in[h.x + 1][v * width + i];
    for (int64_t i = 0; i < rank; i++)
        sum += in[h.u][r * rank + i] * in[h.u + 1][v * rank + i];
    return sum;
}

double lathe__head_logit(const lathe_op_problem *p, double *const *in, lathe__head_inputs h,
                         int64_t r, int64_t v)
{
    return factor(p, in, h, v) * product(p, in, h, r, v);
}

void lathe__head_add_gradient(const lathe_op_problem *p, double *const *in, double *const *out,
                              lathe__head_inputs h, int64_t r, int64_t v, double g)
{
    const int64_t width = p->in[h.x + 1].dims[1], rank = rank_of(p, h);
    double *dx = out[LATHE__HEAD_DX], *dw = out[LATHE__HEAD_DW], *du = out[LATHE__HEAD_DU];
    double *dv = out[LATHE__HEAD_DV];
    if (out[LATHE__HEAD_DS] != NULL)
        out[LATHE__HEAD_DS][v] += g * product(p, in, h, r, v);
    g *= factor(p, in, h, v);
    for (int64_t i = 0; i < width; i++) {
        dx[r * width + i] += g * in[h.x + 1][v * width + i];
        if (dw != NULL)
            dw[v * width + i] += g * in[h.x][r * width + i];
    }
    for (int64_t i = 0; i < rank; i++) {
        if (dv != NULL)
            dv[v * rank + i] += g * in[h.u][r * rank + i];
        if (du != NULL)
            du[r * rank + i] += g * in[h.u + 1][v * rank + i];
    }
}

/* Builds the graph of a Muon update: momentum, normalisation, Newton-Schulz steps, and the
 * change. */
#include "newton_schulz.h"

static const double A = 3.4445, B = -4.7750, C = 2.0315;

/* Adds a node with one output in new memory; the core finds what can be computed in place. */
static lathe_status emit(const lathe_graph_api *api, lathe_graph *g, int32_t op,
                         const lathe_op_attrs *attrs, lathe_val x, lathe_val y, const char *label,
                         lathe_val *out)
{
    const lathe_val in[2] = {x, y};
    return api->node(g, op, attrs, in, y == LATHE_NONE ? 1 : 2, out, 1, -1, label);
}

/* X = a*X + (b*G + c*G*G) X with G = X X^T, or X (b*G + c*G*G) with G = X^T X when tall. */
static lathe_status newton_schulz(const lathe_graph_api *api, lathe_graph *g, int32_t tall,
                                  lathe_val *io_x)
{
    const lathe_op_attrs gram = {.alpha = 1.0, .trans_a = tall, .trans_b = !tall};
    const lathe_op_attrs square = {.alpha = C}, poly = {.alpha = B, .beta = 1.0};
    const lathe_op_attrs apply = {.alpha = 1.0}, mix = {.alpha = A, .beta = 1.0};
    const lathe_val x = *io_x;
    lathe_val s, s2, p, px;
    LATHE_TRY(emit(api, g, LATHE_OP_MATMUL, &gram, x, x, "muon.gram", &s));
    LATHE_TRY(emit(api, g, LATHE_OP_MATMUL, &square, s, s, "muon.gram_squared", &s2));
    LATHE_TRY(emit(api, g, LATHE_OP_LINCOMB, &poly, s, s2, "muon.polynomial", &p));
    LATHE_TRY(
        emit(api, g, LATHE_OP_MATMUL, &apply, tall ? x : p, tall ? p : x, "muon.applied", &px));
    return emit(api, g, LATHE_OP_LINCOMB, &mix, x, px, "muon.iterate", io_x);
}

lathe_status muon_emit(const muon_matrix *m, const lathe_graph_api *api, lathe_graph *g,
                       lathe_val param, lathe_val grad, lathe_val momentum, lathe_val scalars)
{
    lathe_desc d;
    LATHE_TRY(api->desc(g, param, &d));
    const lathe_op_attrs scale = {.start = LATHE_SCALAR_GRAD_SCALE};
    const lathe_op_attrs remember = {.alpha = m->momentum, .beta = 1.0 - m->momentum};
    const lathe_op_attrs look_ahead = {.alpha = 1.0 - m->momentum, .beta = m->momentum};
    const lathe_op_attrs normalize = {.eps = 1e-7f, .dtype = m->ns_dtype};
    const lathe_op_attrs change = {
        .alpha = m->update_scale, .beta = m->decay, .start = LATHE_SCALAR_LR};
    lathe_val scaled, u, x, p;
    LATHE_TRY(emit(api, g, LATHE_OP_SCALE_BY, &scale, grad, scalars, "muon.gradient", &scaled));
    const lathe_val pair[2] = {momentum, scaled};
    LATHE_TRY(api->node(g, LATHE_OP_LINCOMB, &remember, pair, 2, &u, 1, 0, "muon.momentum"));
    if (m->nesterov)
        LATHE_TRY(emit(api, g, LATHE_OP_LINCOMB, &look_ahead, scaled, u, "muon.nesterov", &u));
    LATHE_TRY(
        emit(api, g, LATHE_OP_L2_NORMALIZE, &normalize, u, LATHE_NONE, "muon.normalized", &x));
    for (int32_t k = 0; k < m->ns_steps; k++)
        LATHE_TRY(newton_schulz(api, g, d.dims[0] > d.dims[1], &x));
    const lathe_val last[3] = {param, x, scalars};
    return api->node(g, LATHE_OP_APPLY_UPDATE, &change, last, 3, &p, 1, 0, "muon.update");
}

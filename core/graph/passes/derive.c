/* Computes the derivative: walks the forward nodes backwards and lets each op emit its gradient
 * nodes (graph/ir/tape.h). */
#include <stdlib.h>

#include "base/error.h"
#include "graph/ir/op_info.h"
#include "graph/ir/tape.h"
#include "graph/passes/passes.h"

static void derive_node(lathe_tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_op_info *info = lathe_op_info_get(n->op);
    for (int32_t k = 0; k < n->n_in; k++)
        if (info->fixed_inputs & (1u << k) && lathe__needs(t, n->in[k])) {
            t->status = lathe_error(LATHE_E_UNSUPPORTED,
                                    "%s '%s' has no derivative for its input %d, which a "
                                    "trainable value reaches",
                                    info->name, n->label, k);
            return;
        }
    if (info->derive != NULL)
        info->derive(t, n, dy);
    else
        t->status = lathe_error(
            LATHE_E_UNSUPPORTED,
            "%s '%s' has no derivative, but it is between a trainable value and the loss",
            info->name, n->label);
}

/* Integers, such as an index, have no gradient. */
static int32_t is_float(const lathe_ir_value *v)
{
    return v->desc.dtype == LATHE_F32 || v->desc.dtype == LATHE_BF16 || v->desc.dtype == LATHE_F16;
}

/* Marks the values that depend on a trainable parameter, in forward order. */
static void mark_needs(lathe_graph *g)
{
    for (lathe_val v = 0; v < g->n_values; v++) {
        lathe_ir_value *value = &g->values[v];
        value->needs_grad =
            value->kind == LATHE_VALUE_PARAM && g->params->rows[value->param]->trainable;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *n = &g->nodes[i];
        int32_t any = 0;
        for (int32_t k = 0; k < n->n_in; k++)
            any |= n->in[k] != LATHE_NONE && g->values[n->in[k]].needs_grad;
        for (int32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != LATHE_NONE && g->values[n->out[k]].kind == LATHE_VALUE_TEMP)
                g->values[n->out[k]].needs_grad =
                    any && is_float(&g->values[n->out[k]]) && !g->values[n->out[k]].detached;
    }
}

/* Whether a gradient has arrived at an output of the node. */
static int32_t has_gradient(const lathe_tape *t, const lathe_ir_node *n)
{
    for (int32_t k = 0; k < n->n_out; k++)
        if (n->out[k] != LATHE_NONE && t->grad[n->out[k]] != LATHE_NONE &&
            lathe__needs(t, n->out[k]))
            return 1;
    return 0;
}

/* Walks the nodes backwards. At an op of the core a gradient can arrive only through output 0;
 * statistics (rstd, lse) have no derivative. */
static lathe_status walk_back(lathe_tape *t, int32_t n_forward)
{
    lathe_graph *g = t->g;
    for (int32_t i = n_forward - 1; i >= 0 && t->status == LATHE_OK; i--) {
        const lathe_ir_node n = g->nodes[i];
        const int32_t from_all = lathe_op_info_get(n.op)->from_all_outputs;
        for (int32_t k = 1; k < n.n_out && !from_all; k++)
            if (n.out[k] != LATHE_NONE && t->grad[n.out[k]] != LATHE_NONE)
                return lathe_error(
                    LATHE_E_UNSUPPORTED,
                    "%s '%s' has no derivative for its output %d, which the loss reads",
                    lathe_op_info_get(n.op)->name, n.label, k);
        const lathe_val dy = n.out[0] == LATHE_NONE ? LATHE_NONE : t->grad[n.out[0]];
        if (!has_gradient(t, &n))
            continue;
        g->layer = n.layer;
        g->block = n.block;
        derive_node(t, &n, dy);
    }
    return t->status;
}

lathe_status lathe_derive(lathe_graph *g, lathe_val loss, lathe_val seed)
{
    const int32_t n_forward = g->n_nodes, n_values = g->n_values;
    mark_needs(g);
    if (!g->values[loss].needs_grad)
        return lathe_error(LATHE_E_CONFIG, "no trainable parameter reaches the loss");
    if (g->values[loss].desc.rank != 0 || g->values[seed].desc.rank != 0)
        return lathe_error(LATHE_E_SHAPE, "the loss and its seed must be scalars");
    lathe_tape t = {.g = g};
    t.grad = malloc((size_t)n_values * sizeof *t.grad);
    t.has_grad = calloc((size_t)g->params->n + 1, sizeof *t.has_grad);
    lathe_status status = LATHE_E_NOMEM;
    if (t.grad && t.has_grad) {
        for (int32_t v = 0; v < n_values; v++)
            t.grad[v] = LATHE_NONE;
        t.grad[loss] = seed;
        g->phase = LATHE_PHASE_BACKWARD;
        status = walk_back(&t, n_forward);
        g->phase = LATHE_PHASE_FORWARD;
        g->layer = -1;
        g->block = LATHE_BLOCK_NONE;
    }
    free(t.grad);
    free(t.has_grad);
    return status;
}

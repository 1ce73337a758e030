/* Emits gradient nodes.
 *
 * grad[v] is the value that contains d(loss*seed)/dv so far. A node whose op can add adds a further
 * contribution in place (acc), even if the value so far is still read: lathe_pass_inplace then
 * inserts a COPY. Otherwise an ADD node computes the new value.
 */
#include "graph/ir/tape.h"

#include "graph/ir/op_info.h"

int32_t lathe__needs(const lathe_tape *t, lathe_val v)
{
    return v != LATHE_NONE && t->g->values[v].needs_grad;
}

/* Appends a gradient node without outputs; returns its index, -1 if memory runs out. */
static int32_t append(lathe_tape *t, int32_t op, const lathe_op_attrs *attrs, const lathe_val *in,
                      int32_t n_in, const char *label)
{
    const lathe_op_info info = *lathe_op_info_get(op);
    lathe_ir_node *node = lathe__graph_append(t->g);
    if (!node) {
        t->status = LATHE_E_NOMEM;
        return -1;
    }
    node->op = op;
    node->n_in = info.n_in;
    node->n_out = info.n_out;
    node->label = label;
    node->self = info.runs_on == LATHE_RUNS_OP ? t->self : NULL;
    if (attrs)
        node->attrs = *attrs;
    for (int32_t i = 0; i < n_in; i++)
        node->in[i] = in[i];
    return t->g->n_nodes - 1;
}

/* Writes output k of a node to, or adds it to, the gradient of a parameter. */
static void write_param(lathe_tape *t, int32_t node, int32_t k, int32_t param)
{
    lathe_val out = LATHE_NONE;
    t->status = lathe_graph_grad(t->g, param, &out);
    t->g->nodes[node].write[k] = t->has_grad[param] ? LATHE_WRITE_ADD : LATHE_WRITE_RUNTIME;
    t->g->nodes[node].out[k] = out;
    t->has_grad[param] = 1;
}

/* Gives output k of a gradient node its value: the gradient of forward value targets[k]. The node
 * adds directly to the gradient so far if the op can add, the dtypes agree, and no earlier output
 * of the node has taken that memory. Otherwise the output is a new value. */
static void give_output(lathe_tape *t, int32_t node, int32_t k, const lathe_val *targets)
{
    lathe_graph *g = t->g;
    const lathe_val target = targets[k];
    const lathe_op_info *info = lathe_op_info_get(g->nodes[node].op);
    int adds = lathe__needs(t, target) && info->accumulates;
    for (int32_t j = 0; j < k; j++)
        adds &= targets[j] != target;
    lathe_ir_value init = {.desc = g->values[target].desc,
                           .node = node,
                           .param = -1,
                           .share = LATHE_NONE,
                           .name = g->values[target].name};
    const int is_param = g->values[target].kind == LATHE_VALUE_PARAM;
    const int32_t held = is_param ? lathe_params_grad_dtype(g->params, g->values[target].param) : 0;
    if (info->param_outputs & (1u << k))
        init.desc.dtype = is_param && info->in_grad_dtype ? held : LATHE_F32;
    if (adds && is_param) {
        if (init.desc.dtype == held) {
            write_param(t, node, k, g->values[target].param);
            return;
        }
    } else if (adds && t->grad[target] != LATHE_NONE &&
               g->values[t->grad[target]].desc.dtype == init.desc.dtype) {
        init.share = t->grad[target];
        g->nodes[node].acc[k] = t->grad[target];
        g->nodes[node].write[k] = LATHE_WRITE_ADD;
    }
    const lathe_val out = lathe__graph_value(g, &init);
    g->nodes[node].out[k] = out;
    if (out == LATHE_NONE)
        t->status = LATHE_E_NOMEM;
}

void lathe__emit(lathe_tape *t, int32_t op, const lathe_op_attrs *attrs, const lathe_val *in,
                 int32_t n_in, const lathe_val *targets, uint32_t must, int32_t n_targets,
                 const char *label)
{
    if (t->status != LATHE_OK)
        return;
    const int32_t index = append(t, op, attrs, in, n_in, label);
    for (int32_t k = 0; k < n_targets && t->status == LATHE_OK; k++)
        if (targets[k] != LATHE_NONE && (lathe__needs(t, targets[k]) || (must & (1u << k))))
            give_output(t, index, k, targets);
    for (int32_t k = 0; k < n_targets && t->status == LATHE_OK; k++) {
        const lathe_val target = targets[k], out = t->g->nodes[index].out[k];
        if (out == LATHE_NONE || !lathe__needs(t, target) ||
            t->g->values[out].kind == LATHE_VALUE_GRAD)
            continue;
        if (t->g->nodes[index].acc[k] != LATHE_NONE)
            t->grad[target] = out;
        else
            lathe__add_to_grad(t, target, out, label);
    }
}

lathe_val lathe__as_dtype(lathe_tape *t, lathe_val v, int32_t dtype, const char *label)
{
    const lathe_op_attrs attrs = {.dtype = dtype};
    if (t->status == LATHE_OK && t->g->values[v].desc.dtype != dtype)
        t->status = lathe_graph_node(t->g, LATHE_OP_CAST, &attrs, &v, 1, &v, 1, -1, label);
    return v;
}

void lathe__add_to_grad(lathe_tape *t, lathe_val target, lathe_val contribution, const char *label)
{
    if (!lathe__needs(t, target) || t->status != LATHE_OK)
        return;
    const lathe_ir_value value = t->g->values[target];
    if (value.kind == LATHE_VALUE_PARAM) {
        const lathe_op_attrs one = {.alpha = 1.0};
        contribution = lathe__as_dtype(t, contribution,
                                       lathe_params_grad_dtype(t->g->params, value.param), label);
        if (t->status != LATHE_OK)
            return;
        const int32_t node = append(t, LATHE_OP_SCALE, &one, &contribution, 1, label);
        if (node >= 0)
            write_param(t, node, 0, value.param);
        return;
    }
    contribution = lathe__as_dtype(t, contribution, value.desc.dtype, label);
    if (t->grad[target] == LATHE_NONE) {
        t->grad[target] = contribution;
        return;
    }
    const lathe_val in[2] = {t->grad[target], contribution};
    lathe_val sum = LATHE_NONE;
    if (t->status == LATHE_OK)
        t->status = lathe_graph_node(t->g, LATHE_OP_ADD, NULL, in, 2, &sum, 1, -1, label);
    t->grad[target] = sum;
}

lathe_val lathe__emit_plain(lathe_tape *t, int32_t op, const lathe_op_attrs *attrs, lathe_val a,
                            lathe_val b, const char *label)
{
    const lathe_val in[2] = {a, b};
    lathe_val out = LATHE_NONE;
    if (t->status == LATHE_OK)
        t->status =
            lathe_graph_node(t->g, op, attrs, in, b == LATHE_NONE ? 1 : 2, &out, 1, -1, label);
    return out;
}

void lathe__emit_one(lathe_tape *t, const lathe_ir_node *n, int32_t op, const lathe_op_attrs *attrs,
                     lathe_val a, lathe_val b, lathe_val target)
{
    const lathe_val in[2] = {a, b};
    if (lathe__needs(t, target))
        lathe__emit(t, op, attrs, in, b == LATHE_NONE ? 1 : 2, &target, 1, 1, n->label);
}

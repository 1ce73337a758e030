/* The derivative: walks the forward nodes backwards and emits each op's gradient nodes.
 *
 * grad[v] is the value that holds d(loss*seed)/dv so far. A second contribution to v is added onto the
 * first's memory (acc), legal or not: lathe_pass_inplace puts a COPY where the first is still read.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ir/op_info.h"
#include "ir/passes.h"

typedef struct tape {
    lathe_graph *g;
    lathe_val *grad;   /* [n_forward_values]; LATHE_NONE: nothing yet */
    int32_t *has_grad; /* [n_params]: the parameter's gradient was written in this graph */
    lathe_status status;
} tape;

static int needs(const tape *t, lathe_val v)
{
    return v != LATHE_NONE && t->g->values[v].needs_grad;
}

/* Whether output k of a gradient op is f32 whatever the compute dtype: the gradient of a parameter. That of a
 * LINEAR's weight may be in the compute dtype too. */
static int is_param_output(int32_t op, int32_t k)
{
    switch (op) {
    case LATHE_OP_EMBED_BWD:
    case LATHE_OP_LINEAR_DW:
        return 1;
    case LATHE_OP_RMSNORM_BWD:
    case LATHE_OP_LAYERNORM_BWD:
        return k >= 1;
    case LATHE_OP_HEAD_LOGPROB_BWD:
        return k == 2;
    default:
        return 0;
    }
}

/* A gradient node without outputs yet; returns its index, -1 without memory. */
static int32_t append(tape *t, int32_t op, const lathe_op_attrs *attrs, const lathe_val *in,
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
    if (attrs)
        node->attrs = *attrs;
    for (int32_t i = 0; i < n_in; i++)
        node->in[i] = in[i];
    return t->g->n_nodes - 1;
}

/* Output k of a node becomes, or is added to, the gradient of a parameter. */
static void write_param(tape *t, int32_t node, int32_t k, int32_t param)
{
    lathe_val out = LATHE_NONE;
    t->status = lathe_graph_grad(t->g, param, &out);
    t->g->nodes[node].write[k] = t->has_grad[param] ? LATHE_WRITE_ADD : LATHE_WRITE_RUNTIME;
    t->g->nodes[node].out[k] = out;
    t->has_grad[param] = 1;
}

/* Gives output k of a gradient node its value: the gradient of forward value targets[k]. It is written
 * straight onto the gradient so far where the op can add, the dtypes agree, and no earlier output of
 * the node has taken that memory; otherwise it is a value of its own. */
static void give_output(tape *t, int32_t node, int32_t k, const lathe_val *targets)
{
    lathe_graph *g = t->g;
    const lathe_val target = targets[k];
    const int32_t op = g->nodes[node].op;
    int adds = needs(t, target) && lathe_op_info_get(op)->accumulates;
    for (int32_t j = 0; j < k; j++)
        adds &= targets[j] != target;
    lathe_ir_value init = {.desc = g->values[target].desc,
                           .node = node,
                           .param = -1,
                           .share = LATHE_NONE,
                           .name = g->values[target].name};
    const int is_param = g->values[target].kind == LATHE_VALUE_PARAM;
    const int32_t held = is_param ? lathe_params_grad_dtype(g->params, g->values[target].param) : 0;
    if (is_param_output(op, k))
        init.desc.dtype = is_param && op == LATHE_OP_LINEAR_DW ? held : LATHE_F32;
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

static void add_to_grad(tape *t, lathe_val target, lathe_val contribution, const char *label);

/* Emits one gradient node. targets[k]: the forward value whose gradient output k is, or LATHE_NONE when
 * nobody wants it; must: bit k, the op has no way to leave output k out. */
static void emit(tape *t, int32_t op, const lathe_op_attrs *attrs, const lathe_val *in,
                 int32_t n_in, const lathe_val *targets, uint32_t must, int32_t n_targets,
                 const char *label)
{
    if (t->status != LATHE_OK)
        return;
    const int32_t index = append(t, op, attrs, in, n_in, label);
    for (int32_t k = 0; k < n_targets && t->status == LATHE_OK; k++)
        if (targets[k] != LATHE_NONE && (needs(t, targets[k]) || (must & (1u << k))))
            give_output(t, index, k, targets);
    for (int32_t k = 0; k < n_targets && t->status == LATHE_OK; k++) {
        const lathe_val target = targets[k], out = t->g->nodes[index].out[k];
        if (out == LATHE_NONE || !needs(t, target) || t->g->values[out].kind == LATHE_VALUE_GRAD)
            continue;
        if (t->g->nodes[index].acc[k] != LATHE_NONE)
            t->grad[target] = out;
        else
            add_to_grad(t, target, out, label);
    }
}

/* v in another dtype; v itself when it has it. */
static lathe_val as_dtype(tape *t, lathe_val v, int32_t dtype, const char *label)
{
    const lathe_op_attrs attrs = {.dtype = dtype};
    if (t->status == LATHE_OK && t->g->values[v].desc.dtype != dtype)
        t->status = lathe_graph_node(t->g, LATHE_OP_CAST, &attrs, &v, 1, &v, 1, -1, label);
    return v;
}

static void add_to_grad(tape *t, lathe_val target, lathe_val contribution, const char *label)
{
    if (!needs(t, target) || t->status != LATHE_OK)
        return;
    const lathe_ir_value value = t->g->values[target];
    if (value.kind == LATHE_VALUE_PARAM) {
        const lathe_op_attrs one = {.alpha = 1.0};
        contribution =
            as_dtype(t, contribution, lathe_params_grad_dtype(t->g->params, value.param), label);
        if (t->status != LATHE_OK)
            return;
        const int32_t node = append(t, LATHE_OP_SCALE, &one, &contribution, 1, label);
        if (node >= 0)
            write_param(t, node, 0, value.param);
        return;
    }
    contribution = as_dtype(t, contribution, value.desc.dtype, label);
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

/* A helper node of a composed derivative: its output is no gradient yet. */
static lathe_val plain(tape *t, int32_t op, const lathe_op_attrs *attrs, lathe_val a, lathe_val b,
                       const char *label)
{
    const lathe_val in[2] = {a, b};
    lathe_val out = LATHE_NONE;
    if (t->status == LATHE_OK)
        t->status =
            lathe_graph_node(t->g, op, attrs, in, b == LATHE_NONE ? 1 : 2, &out, 1, -1, label);
    return out;
}

static void one_to_one(tape *t, const lathe_ir_node *n, int32_t op, const lathe_op_attrs *attrs,
                       lathe_val a, lathe_val b, lathe_val target)
{
    const lathe_val in[2] = {a, b};
    if (needs(t, target))
        emit(t, op, attrs, in, b == LATHE_NONE ? 1 : 2, &target, 1, 1, n->label);
}

static void derive_linear(tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val x = n->in[0], w = n->in[1], b = n->in[2];
    const lathe_op_attrs attrs = {.fp8 = n->attrs.fp8};
    one_to_one(t, n, LATHE_OP_LINEAR_DX, &attrs, dy, w, x);
    if (needs(t, w) || needs(t, b)) {
        const lathe_val in[2] = {dy, x}, targets[2] = {w, b};
        emit(t, LATHE_OP_LINEAR_DW, &attrs, in, 2, targets, 1, 2, n->label);
    }
}

static void derive_matmul(tape *t, const lathe_ir_node *n, lathe_val dy)
{
    /* Y = s op(A) op(B). dA = s dY op(B)^T, transposed as a whole when A was; likewise dB. */
    const lathe_val a = n->in[0], b = n->in[1];
    const int32_t ta = n->attrs.trans_a, tb = n->attrs.trans_b;
    lathe_op_attrs da = {.alpha = n->attrs.alpha}, db = {.alpha = n->attrs.alpha};
    if (ta) {
        da.trans_a = tb;
        da.trans_b = 1;
        one_to_one(t, n, LATHE_OP_MATMUL, &da, b, dy, a);
    } else {
        da.trans_b = !tb;
        one_to_one(t, n, LATHE_OP_MATMUL, &da, dy, b, a);
    }
    if (tb) {
        db.trans_a = 1;
        db.trans_b = ta;
        one_to_one(t, n, LATHE_OP_MATMUL, &db, dy, a, b);
    } else {
        db.trans_a = !ta;
        one_to_one(t, n, LATHE_OP_MATMUL, &db, a, dy, b);
    }
}

static void derive_logsigmoid(tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_op_attrs negate = {.alpha = -1.0};
    const lathe_val minus_x = plain(t, LATHE_OP_SCALE, &negate, n->in[0], LATHE_NONE, n->label);
    const lathe_val s = plain(t, LATHE_OP_SIGMOID, NULL, minus_x, LATHE_NONE, n->label);
    one_to_one(t, n, LATHE_OP_MUL, NULL, dy, s, n->in[0]);
}

static void derive_sigmoid(tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_op_attrs one_minus = {.alpha = -1.0, .beta = 1.0};
    const lathe_val u = plain(t, LATHE_OP_SCALE, &one_minus, n->out[0], LATHE_NONE, n->label);
    const lathe_val slope = plain(t, LATHE_OP_MUL, NULL, n->out[0], u, n->label);
    one_to_one(t, n, LATHE_OP_MUL, NULL, dy, slope, n->in[0]);
}

static void derive_slice(tape *t, const lathe_ir_node *n, lathe_val dy)
{
    lathe_op_attrs attrs = n->attrs;
    attrs.batch = t->g->values[n->in[0]].desc.dims[0];
    one_to_one(t, n, LATHE_OP_SLICE_BWD, &attrs, dy, LATHE_NONE, n->in[0]);
}

static void derive_attention(tape *t, const lathe_ir_node *n, lathe_val dy)
{
    if (n->in[4] != LATHE_NONE) {
        t->status = lathe_error(LATHE_E_UNSUPPORTED,
                                "attention '%s' reads a KV cache: it has no derivative", n->label);
        return;
    }
    const lathe_val in[7] = {dy, n->in[0], n->in[1], n->in[2], n->out[0], n->out[1], n->in[3]};
    emit(t, LATHE_OP_ATTENTION_BWD, &n->attrs, in, 7, n->in, 7, 3, n->label);
}

static void derive_head(tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val in[4] = {n->in[0], n->in[1], n->in[2], dy};
    const lathe_val targets[3] = {n->out[0], n->in[0], n->in[1]};
    /* output 0 is the log-probabilities again, not a gradient of them */
    t->g->values[n->out[0]].needs_grad = 0;
    emit(t, LATHE_OP_HEAD_LOGPROB_BWD, &n->attrs, in, 4, targets, 3, 3, n->label);
    t->g->values[n->out[0]].needs_grad = 1;
}

/* The rules of ops whose derivative is one node of their own, reading dy and saved values. */
static int derive_paired(tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val *x = n->in, *y = n->out;
    switch (n->op) {
    case LATHE_OP_EMBED:
        if (needs(t, x[1]))
            emit(t, LATHE_OP_EMBED_BWD, NULL, (lathe_val[]){dy, x[0]}, 2, &x[1], 1, 1, n->label);
        return 1;
    case LATHE_OP_RMSNORM:
        emit(t, LATHE_OP_RMSNORM_BWD, &n->attrs, (lathe_val[]){dy, x[0], x[1], y[1]}, 4, x, 1, 2,
             n->label);
        return 1;
    case LATHE_OP_LAYERNORM:
        emit(t, LATHE_OP_LAYERNORM_BWD, &n->attrs, (lathe_val[]){dy, x[0], x[1], y[1], y[2]}, 5, x,
             1, 3, n->label);
        return 1;
    case LATHE_OP_SWIGLU:
        emit(t, LATHE_OP_SWIGLU_BWD, NULL, (lathe_val[]){dy, x[0], x[1]}, 3, x, 3, 2, n->label);
        return 1;
    case LATHE_OP_GELU_TANH:
        one_to_one(t, n, LATHE_OP_GELU_TANH_BWD, NULL, dy, x[0], x[0]);
        return 1;
    case LATHE_OP_DROPOUT:
        one_to_one(t, n, LATHE_OP_DROPOUT_BWD, &n->attrs, dy, x[1], x[0]);
        return 1;
    default:
        return 0;
    }
}

static void derive_node(tape *t, const lathe_ir_node *n, lathe_val dy)
{
    const lathe_val *x = n->in;
    lathe_op_attrs attrs = n->attrs;
    if (derive_paired(t, n, dy))
        return;
    switch (n->op) {
    case LATHE_OP_LINEAR:
        derive_linear(t, n, dy);
        break;
    case LATHE_OP_ATTENTION:
        derive_attention(t, n, dy);
        break;
    case LATHE_OP_HEAD_LOGPROB:
        derive_head(t, n, dy);
        break;
    case LATHE_OP_MATMUL:
        derive_matmul(t, n, dy);
        break;
    case LATHE_OP_ROPE:
        attrs.inverse = !attrs.inverse;
        if (needs(t, x[0]))
            emit(t, LATHE_OP_ROPE, &attrs, (lathe_val[]){dy, x[1], x[2]}, 3, x, 1, 1, n->label);
        break;
    case LATHE_OP_COPY:
        add_to_grad(t, x[0], dy, n->label);
        break;
    case LATHE_OP_ADD:
        add_to_grad(t, x[0], dy, n->label);
        add_to_grad(t, x[1], dy, n->label);
        break;
    case LATHE_OP_SUB:
        add_to_grad(t, x[0], dy, n->label);
        one_to_one(t, n, LATHE_OP_SCALE, &(lathe_op_attrs){.alpha = -1.0}, dy, LATHE_NONE, x[1]);
        break;
    case LATHE_OP_MUL:
        one_to_one(t, n, LATHE_OP_MUL, NULL, dy, x[1], x[0]);
        one_to_one(t, n, LATHE_OP_MUL, NULL, dy, x[0], x[1]);
        break;
    case LATHE_OP_SCALE:
        attrs.beta = 0.0;
        one_to_one(t, n, LATHE_OP_SCALE, &attrs, dy, LATHE_NONE, x[0]);
        break;
    case LATHE_OP_SCALE_BY:
        if (needs(t, x[1]))
            t->status = lathe_error(LATHE_E_UNSUPPORTED,
                                    "scale_by '%s' has no derivative for its factor, which a "
                                    "trainable value reaches",
                                    n->label);
        one_to_one(t, n, LATHE_OP_SCALE_BY, &attrs, dy, x[1], x[0]);
        break;
    case LATHE_OP_LINCOMB:
        one_to_one(t, n, LATHE_OP_SCALE, &(lathe_op_attrs){.alpha = attrs.alpha}, dy, LATHE_NONE,
                   x[0]);
        if (needs(t, x[1]))
            dy = as_dtype(t, dy, t->g->values[x[1]].desc.dtype, n->label);
        one_to_one(t, n, LATHE_OP_SCALE, &(lathe_op_attrs){.alpha = attrs.beta}, dy, LATHE_NONE,
                   x[1]);
        break;
    case LATHE_OP_CAST:
        if (needs(t, x[0])) {
            attrs.dtype = t->g->values[x[0]].desc.dtype;
            one_to_one(t, n, LATHE_OP_CAST, &attrs, dy, LATHE_NONE, x[0]);
        }
        break;
    case LATHE_OP_SUM:
        attrs.count = lathe_desc_count(&t->g->values[x[0]].desc);
        one_to_one(t, n, LATHE_OP_BROADCAST, &attrs, dy, LATHE_NONE, x[0]);
        break;
    case LATHE_OP_ROW_SUM:
        one_to_one(t, n, LATHE_OP_BROADCAST, &attrs, dy, LATHE_NONE, x[0]);
        break;
    case LATHE_OP_SLICE:
        derive_slice(t, n, dy);
        break;
    case LATHE_OP_LOGSIGMOID:
        derive_logsigmoid(t, n, dy);
        break;
    case LATHE_OP_SIGMOID:
        derive_sigmoid(t, n, dy);
        break;
    case LATHE_OP_TRANSPOSE:
        one_to_one(t, n, LATHE_OP_TRANSPOSE, NULL, dy, LATHE_NONE, x[0]);
        break;
    default:
        t->status =
            lathe_error(LATHE_E_UNSUPPORTED,
                        "%s '%s' has no derivative but lies between a trainable value and the loss",
                        lathe_op_info_get(n->op)->name, n->label);
    }
}

/* Forward sweep: which values depend on a trainable parameter. */
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
                g->values[n->out[k]].needs_grad = any && !g->values[n->out[k]].detached;
    }
}

/* A gradient can arrive through output 0 only; for statistics (rstd, lse) there is no rule. */
static lathe_status walk_back(tape *t, int32_t n_forward)
{
    lathe_graph *g = t->g;
    for (int32_t i = n_forward - 1; i >= 0 && t->status == LATHE_OK; i--) {
        const lathe_ir_node n = g->nodes[i];
        for (int32_t k = 1; k < n.n_out; k++)
            if (n.out[k] != LATHE_NONE && t->grad[n.out[k]] != LATHE_NONE)
                return lathe_error(
                    LATHE_E_UNSUPPORTED,
                    "%s '%s' has no derivative for its output %d, which the loss reads",
                    lathe_op_info_get(n.op)->name, n.label, k);
        const lathe_val dy = n.out[0] == LATHE_NONE ? LATHE_NONE : t->grad[n.out[0]];
        if (dy == LATHE_NONE || !needs(t, n.out[0]))
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
    tape t = {.g = g};
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

/* Builds graphs, and implements the function table that plugins use to build them. */
#include "ir/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ir/op_info.h"
#include "lathe/rng.h"

lathe_status lathe_graph_create(lathe_params *params, lathe_graph **out)
{
    lathe_graph *g = calloc(1, sizeof *g);
    if (!g)
        return lathe_error(LATHE_E_NOMEM, "no memory for a graph");
    g->params = params;
    g->layer = -1;
    g->rng = LATHE_NONE;
    *out = g;
    return LATHE_OK;
}

void lathe_graph_destroy(lathe_graph *g)
{
    if (!g)
        return;
    free(g->values);
    free(g->nodes);
    free(g->param_values);
    lathe_arena_fini(&g->arena);
    free(g);
}

void lathe_graph_set_layer(lathe_graph *g, int32_t layer, int32_t block)
{
    g->layer = layer;
    g->block = block;
}

lathe_val lathe__graph_value(lathe_graph *g, const lathe_ir_value *init)
{
    if (g->n_values == g->cap_values) {
        const int32_t capacity = g->cap_values ? 2 * g->cap_values : 256;
        lathe_ir_value *values = realloc(g->values, (size_t)capacity * sizeof *values);
        if (!values) {
            (void)lathe_error(LATHE_E_NOMEM, "no memory for %d graph values", capacity);
            return LATHE_NONE;
        }
        g->values = values;
        g->cap_values = capacity;
    }
    lathe_ir_value *v = &g->values[g->n_values];
    *v = *init;
    v->name = lathe_arena_strdup(&g->arena, init->name ? init->name : "");
    return v->name ? g->n_values++ : LATHE_NONE;
}

lathe_ir_node *lathe__graph_append(lathe_graph *g)
{
    if (g->n_nodes == g->cap_nodes) {
        const int32_t capacity = g->cap_nodes ? 2 * g->cap_nodes : 256;
        lathe_ir_node *nodes = realloc(g->nodes, (size_t)capacity * sizeof *nodes);
        if (!nodes) {
            (void)lathe_error(LATHE_E_NOMEM, "no memory for %d graph nodes", capacity);
            return NULL;
        }
        g->nodes = nodes;
        g->cap_nodes = capacity;
    }
    lathe_ir_node *n = &g->nodes[g->n_nodes++];
    memset(n, 0, sizeof *n);
    for (int32_t i = 0; i < LATHE_OP_MAX_IN; i++)
        n->in[i] = LATHE_NONE;
    for (int32_t i = 0; i < LATHE_OP_MAX_OUT; i++)
        n->out[i] = n->acc[i] = LATHE_NONE;
    n->layer = g->layer;
    n->block = g->block;
    n->phase = g->phase;
    return n;
}

static lathe_status named_value(lathe_graph *g, int32_t kind, const char *name, lathe_desc desc,
                                int32_t param, int32_t plane, const void *data, lathe_val *out)
{
    const lathe_ir_value init = {.desc = desc,
                                 .kind = kind,
                                 .node = -1,
                                 .param = param,
                                 .plane = plane,
                                 .share = LATHE_NONE,
                                 .name = name,
                                 .data = data};
    *out = lathe__graph_value(g, &init);
    return *out == LATHE_NONE ? LATHE_E_NOMEM : LATHE_OK;
}

lathe_status lathe_graph_input(lathe_graph *g, const char *name, lathe_desc desc, lathe_val *out)
{
    return named_value(g, LATHE_VALUE_INPUT, name, desc, -1, 0, NULL, out);
}

lathe_status lathe_graph_const(lathe_graph *g, const char *name, lathe_desc desc, const void *data,
                               lathe_val *out)
{
    const int64_t bytes = lathe_desc_bytes(&desc);
    void *copy = lathe_arena_alloc(&g->arena, bytes > 0 ? bytes : 1);
    if (!copy)
        return LATHE_E_NOMEM;
    memcpy(copy, data, (size_t)bytes);
    return named_value(g, LATHE_VALUE_CONST, name, desc, -1, 0, copy, out);
}

lathe_status lathe_graph_state(lathe_graph *g, const char *name, lathe_desc desc, lathe_val *out)
{
    return named_value(g, LATHE_VALUE_STATE, name, desc, -1, 0, NULL, out);
}

/* Entry for the value of (kind, parameter, plane): 3 kinds, the planes and all of them together for
 * each parameter. NULL: out of memory. */
static int32_t *param_slot(lathe_graph *g, int32_t kind, int32_t param, int32_t plane)
{
    enum { EACH = LATHE_VALUE_PLANE - LATHE_VALUE_PARAM + LATHE_MAX_PLANES + 1 };
    const int64_t at = (int64_t)param * EACH +
                       (kind == LATHE_VALUE_PLANES ? EACH - 1 : (kind - LATHE_VALUE_PARAM) + plane);
    if (at >= g->cap_param_values) {
        const int64_t capacity = 2 * at + 256;
        int32_t *values = capacity <= INT32_MAX
                              ? realloc(g->param_values, (size_t)capacity * sizeof *values)
                              : NULL;
        if (!values) {
            (void)lathe_error(LATHE_E_NOMEM, "no memory for the values of %d parameters", param);
            return NULL;
        }
        memset(values + g->cap_param_values, 0,
               (size_t)(capacity - g->cap_param_values) * sizeof *values);
        g->param_values = values;
        g->cap_param_values = (int32_t)capacity;
    }
    return &g->param_values[at];
}

/* A graph has one value per (kind, parameter, plane). */
static lathe_status param_value(lathe_graph *g, int32_t kind, int32_t param, int32_t plane,
                                lathe_desc desc, lathe_val *out)
{
    int32_t *slot = param_slot(g, kind, param, plane);
    if (!slot)
        return LATHE_E_NOMEM;
    if (*slot == 0) {
        LATHE_TRY(
            named_value(g, kind, g->params->rows[param]->name, desc, param, plane, NULL, out));
        *slot = *out + 1;
    }
    *out = *slot - 1;
    return LATHE_OK;
}

lathe_status lathe_graph_param(lathe_graph *g, int32_t param, lathe_val *out)
{
    lathe_desc desc = g->params->rows[param]->desc;
    desc.dtype = lathe_params_value_dtype(g->params, param);
    return param_value(g, LATHE_VALUE_PARAM, param, 0, desc, out);
}

lathe_status lathe_graph_master(lathe_graph *g, int32_t param, lathe_val *out)
{
    return param_value(g, LATHE_VALUE_MASTER, param, 0, g->params->rows[param]->desc, out);
}

lathe_status lathe_graph_grad(lathe_graph *g, int32_t param, lathe_val *out)
{
    lathe_desc desc = g->params->rows[param]->desc;
    desc.dtype = lathe_params_grad_dtype(g->params, param);
    return param_value(g, LATHE_VALUE_GRAD, param, 0, desc, out);
}

lathe_status lathe_graph_plane(lathe_graph *g, int32_t param, int32_t plane, lathe_val *out)
{
    return param_value(g, LATHE_VALUE_PLANE, param, plane,
                       g->params->rows[param]->planes[plane].desc, out);
}

lathe_status lathe_graph_planes(lathe_graph *g, int32_t param, lathe_val *out)
{
    lathe_desc desc = g->params->rows[param]->desc;
    desc.dtype = LATHE_PLANES;
    return param_value(g, LATHE_VALUE_PLANES, param, 0, desc, out);
}

void lathe_graph_output(lathe_graph *g, lathe_val v)
{
    g->values[v].is_output = 1;
}

lathe_val lathe_graph_root(const lathe_graph *g, lathe_val v)
{
    while (g->values[v].share != LATHE_NONE)
        v = g->values[v].share;
    return v;
}

int32_t lathe_graph_is_persistent(const lathe_graph *g, lathe_val v)
{
    return g->values[lathe_graph_root(g, v)].kind != LATHE_VALUE_TEMP;
}

/* Checks a node's arguments before it is appended. */
static lathe_status check_node(const lathe_graph *g, int32_t op, const lathe_val *in, int32_t n_in,
                               int32_t n_out, int32_t inplace_in, const char *label)
{
    const lathe_op_info *info = op < LATHE_N_OPS ? lathe_op_info_get(op) : NULL;
    if (!info)
        return lathe_error(LATHE_E_ARG, "node '%s': %d is not an op", label, op);
    if (n_in > info->n_in || n_out > info->n_out || n_in < 0 || n_out < 1)
        return lathe_error(LATHE_E_ARG,
                           "%s '%s' takes up to %d inputs and %d outputs, got %d and %d",
                           info->name, label, info->n_in, info->n_out, n_in, n_out);
    for (int32_t i = 0; i < n_in; i++)
        if (in[i] != LATHE_NONE && (in[i] < 0 || in[i] >= g->n_values))
            return lathe_error(LATHE_E_ARG, "%s '%s': input %d is value %d, which does not exist",
                               info->name, label, i, in[i]);
    if (inplace_in >= 0 && (inplace_in >= n_in || in[inplace_in] == LATHE_NONE ||
                            !(info->inplace & (1u << inplace_in))))
        return lathe_error(LATHE_E_ARG, "%s '%s' cannot take the memory of its input %d",
                           info->name, label, inplace_in);
    return LATHE_OK;
}

void lathe__graph_problem(const lathe_graph *g, const lathe_ir_node *n, lathe_op_problem *out)
{
    const lathe_desc absent = {LATHE_ABSENT, 0, {1, 1, 1, 1}};
    *out = (lathe_op_problem){
        .op = n->op, .n_in = n->n_in, .n_out = n->n_out, .label = n->label, .attrs = n->attrs};
    for (int32_t i = 0; i < LATHE_OP_MAX_IN; i++)
        out->in[i] = n->in[i] == LATHE_NONE ? absent : g->values[n->in[i]].desc;
    for (int32_t i = 0; i < LATHE_OP_MAX_OUT; i++)
        out->out[i] = n->out[i] == LATHE_NONE ? absent : g->values[n->out[i]].desc;
}

/* Infers shapes and dtypes of a node's outputs; LATHE_ABSENT: the node does not have that
 * output. */
static lathe_status infer(const lathe_graph *g, const lathe_ir_node *node, lathe_op_problem *out)
{
    const lathe_op_info *info = lathe_op_info_get(node->op);
    lathe__graph_problem(g, node, out);
    if (info->infer == NULL)
        return lathe_error(LATHE_E_ARG, "op %d of node '%s' has no shape rule", node->op,
                           node->label);
    return info->infer(out);
}

lathe_status lathe_graph_node(lathe_graph *g, int32_t op, const lathe_op_attrs *attrs,
                              const lathe_val *in, int32_t n_in, lathe_val *out, int32_t n_out,
                              int32_t inplace_in, const char *label)
{
    label = label ? label : "";
    LATHE_TRY(check_node(g, op, in, n_in, n_out, inplace_in, label));
    const lathe_op_info *info = lathe_op_info_get(op);
    if (info->training_only && g->drop_nothing) {
        out[0] = in[0];
        return LATHE_OK;
    }
    lathe_ir_node *node = lathe__graph_append(g);
    if (!node)
        return LATHE_E_NOMEM;
    node->op = op;
    node->n_in = info->n_in;
    node->n_out = info->n_out;
    node->label = lathe_arena_strdup(&g->arena, label);
    if (attrs)
        node->attrs = *attrs;
    for (int32_t i = 0; i < n_in; i++)
        node->in[i] = in[i];
    lathe_op_problem problem;
    const lathe_status status = infer(g, node, &problem);
    const lathe_desc *desc = problem.out;
    if (status != LATHE_OK || !node->label) {
        g->n_nodes--;
        return status != LATHE_OK ? status : LATHE_E_NOMEM;
    }
    const int32_t index = g->n_nodes - 1;
    if (info->inplace_always)
        inplace_in = 0;
    for (int32_t k = 0; k < n_out; k++) {
        out[k] = LATHE_NONE;
        if (desc[k].dtype == LATHE_ABSENT)
            continue;
        lathe_ir_value init = {
            .desc = desc[k], .node = index, .param = -1, .share = LATHE_NONE, .name = label};
        if (k == 0 && inplace_in >= 0) {
            init.share = in[inplace_in];
            init.desc.dtype = g->values[in[inplace_in]].desc.dtype;
        }
        out[k] = lathe__graph_value(g, &init);
        if (out[k] == LATHE_NONE)
            return LATHE_E_NOMEM;
        g->nodes[index].out[k] = out[k];
    }
    return LATHE_OK;
}

/* ---- function table for plugins ---- */

static lathe_status api_desc(lathe_graph *g, lathe_val v, lathe_desc *out)
{
    if (v < 0 || v >= g->n_values)
        return lathe_error(LATHE_E_ARG, "value %d does not exist", v);
    *out = g->values[v].desc;
    return LATHE_OK;
}

/* Decodes the weight of a quantized parameter from its planes into the compute dtype. */
static lathe_status decode(lathe_graph *g, int32_t param, lathe_val *out)
{
    const lathe_param *p = g->params->rows[param];
    lathe_ir_node *node;
    lathe_val planes[LATHE_MAX_PLANES];
    for (int32_t i = 0; i < p->n_planes; i++)
        LATHE_TRY(lathe_graph_plane(g, param, i, &planes[i]));
    node = lathe__graph_append(g);
    if (!node)
        return LATHE_E_NOMEM;
    node->op = LATHE_OP_DEQUANT;
    node->n_in = LATHE_OP_MAX_IN < LATHE_MAX_PLANES ? LATHE_OP_MAX_IN : LATHE_MAX_PLANES;
    node->n_out = 1;
    node->label = p->name;
    for (int32_t i = 0; i < p->n_planes; i++)
        node->in[i] = planes[i];
    lathe_desc desc = p->desc;
    desc.dtype = lathe_params_value_dtype(g->params, param);
    const lathe_ir_value init = {
        .desc = desc, .node = g->n_nodes - 1, .param = param, .share = LATHE_NONE, .name = p->name};
    *out = lathe__graph_value(g, &init);
    g->nodes[g->n_nodes - 1].out[0] = *out;
    return *out == LATHE_NONE ? LATHE_E_NOMEM : LATHE_OK;
}

static lathe_status api_linear(lathe_graph *g, lathe_val x, lathe_val w, lathe_val bias,
                               const char *label, lathe_val *out)
{
    if (w < 0 || w >= g->n_values)
        return lathe_error(LATHE_E_ARG, "linear '%s' has no weight", label);
    const int32_t param = g->values[w].param;
    if (g->values[w].kind == LATHE_VALUE_PARAM && g->params->rows[param]->format)
        LATHE_TRY(decode(g, param, &w));
    const lathe_val in[3] = {x, w, bias};
    return lathe_graph_node(g, LATHE_OP_LINEAR, NULL, in, 3, out, 1, -1, label);
}

/* Inserts a COPY that stops the derivative; a copy in place is removed later. */
static lathe_status api_detach(lathe_graph *g, lathe_val x, lathe_val *out)
{
    LATHE_TRY(lathe_graph_node(g, LATHE_OP_COPY, NULL, &x, 1, out, 1, -1, "detach"));
    g->values[*out].detached = 1;
    return LATHE_OK;
}

static lathe_status api_rng(lathe_graph *g, lathe_val *out)
{
    if (g->rng == LATHE_NONE)
        LATHE_TRY(
            lathe_graph_input(g, "rng", lathe_desc_1d(LATHE_I64, LATHE_RNG_COUNTER), &g->rng));
    *out = g->rng;
    return LATHE_OK;
}

static uint64_t api_rng_stream(lathe_graph *g)
{
    return ++g->next_rng_stream;
}

const lathe_graph_api *lathe_graph_api_get(void)
{
    static const lathe_graph_api api = {.size = (uint32_t)sizeof api,
                                        .revision = 1,
                                        .desc = api_desc,
                                        .node = lathe_graph_node,
                                        .param = lathe__graph_declare,
                                        .linear = api_linear,
                                        .detach = api_detach,
                                        .rng = api_rng,
                                        .rng_stream = api_rng_stream};
    return &api;
}

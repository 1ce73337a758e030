/* Builds graphs, and implements the function table that plugins use to build them. */
#include "graph/ir/ir_graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/ir/op_attrs.h"
#include "graph/ir/op_info.h"
#include "graph/ir/op_source.h"
#include "lathe/rng.h"

lathe_status lathe_graph_create(lathe_params *params, lathe_graph **out)
{
    lathe_graph *g = calloc(1, sizeof *g);
    if (!g)
        return lathe_error(LATHE_E_NOMEM, "no memory for a graph");
    g->params = params;
    g->layer = -1;
    g->rng = LATHE_NONE;
    g->expert_first = LATHE_NONE;
    g->slots = LATHE_NONE;
    *out = g;
    return LATHE_OK;
}

void lathe_graph_destroy(lathe_graph *g)
{
    if (!g)
        return;
    for (lathe_op_opened *o = g->opened, *next; o != NULL; o = next) {
        next = o->next;
        o->close(o);
    }
    free(g->values);
    free(g->nodes);
    free(g->param_values);
    free(g->states);
    lathe_arena_fini(&g->arena);
    free(g);
}

void lathe_graph_decodes(lathe_graph *g, int64_t n_rows, int64_t n_slots)
{
    g->n_rows = n_rows;
    g->n_slots = n_slots;
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
    const lathe_op_info *info = lathe_op_info_get(op);
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
    *out = (lathe_op_problem){.op = n->op,
                              .n_in = n->n_in,
                              .n_out = n->n_out,
                              .label = n->label,
                              .self = n->self,
                              .attrs = n->attrs};
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

/* While an adapter builds a site of experts, only products read their matrices: to another op they
 * would be one matrix. */
static lathe_status check_experts(const lathe_graph *g, const lathe_op_info *info, int32_t op,
                                  const lathe_val *in, int32_t n_in)
{
    for (int32_t i = 0; g->n_experts > 0 && op != LATHE_OP_EXPERT_LINEAR && i < n_in; i++) {
        const lathe_ir_value *v = in[i] != LATHE_NONE ? &g->values[in[i]] : NULL;
        if (v != NULL && v->param >= 0 && g->params->rows[v->param]->n_experts > 0)
            return lathe_error(
                LATHE_E_CONFIG,
                "the adapter computes %s of '%s', which holds a matrix for each of %d "
                "experts: it cannot change experts; take them out of its targets",
                info->name, g->params->rows[v->param]->name, (int)g->n_experts);
    }
    return LATHE_OK;
}

/* Gives the node its outputs. The first n_out of them go to out; the core's ops have no others. */
static lathe_status give_outputs(lathe_graph *g, int32_t index, const lathe_desc *desc,
                                 lathe_val taken, lathe_val *out, int32_t n_out)
{
    const lathe_op_info *info = lathe_op_info_get(g->nodes[index].op);
    const int32_t n = info->runs_on == LATHE_RUNS_OP ? g->nodes[index].n_out : n_out;
    for (int32_t k = 0; k < n; k++) {
        lathe_val v = LATHE_NONE;
        if (desc[k].dtype != LATHE_ABSENT) {
            lathe_ir_value init = {.desc = desc[k],
                                   .node = index,
                                   .param = -1,
                                   .share = LATHE_NONE,
                                   .name = g->nodes[index].label};
            if (k == 0 && taken != LATHE_NONE) {
                init.share = taken;
                init.desc.dtype = g->values[taken].desc.dtype;
            } else if (k == info->n_out) { /* the states of sequences */
                init.share = g->nodes[index].in[info->n_in + 1];
            }
            v = lathe__graph_value(g, &init);
            if (v == LATHE_NONE)
                return LATHE_E_NOMEM;
            g->nodes[index].out[k] = v;
        }
        if (k < n_out)
            out[k] = v;
    }
    return LATHE_OK;
}

/* Gives the node that is being added the states of sequences: two inputs and an output. */
static lathe_status add_states(lathe_graph *g, const lathe_op_info *info, int32_t index)
{
    lathe_op_problem p;
    lathe_desc pool;
    lathe_val states;
    lathe__graph_problem(g, &g->nodes[index], &p);
    LATHE_TRY(info->state(&p, &pool));
    for (int32_t i = pool.rank; i > 0; i--)
        pool.dims[i] = pool.dims[i - 1];
    pool.dims[0] = g->n_slots;
    pool.rank++;
    if (g->slots == LATHE_NONE)
        LATHE_TRY(lathe_graph_input(g, "slots", lathe_desc_1d(LATHE_I32, g->n_rows), &g->slots));
    LATHE_TRY(lathe_graph_state(g, "states", pool, &states));
    lathe_val *more = realloc(g->states, ((size_t)g->n_states + 1) * sizeof *more);
    if (more == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for %d states", g->n_states + 1);
    g->states = more;
    g->states[g->n_states++] = states;
    lathe_ir_node *node = &g->nodes[index];
    node->in[info->n_in] = g->slots;
    node->in[info->n_in + 1] = states;
    node->n_in = info->n_in + 2;
    node->n_out = info->n_out + 1;
    return LATHE_OK;
}

lathe_status lathe__graph_add(lathe_graph *g, int32_t op, const lathe_op_attrs *attrs, void *self,
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
    LATHE_TRY(check_experts(g, info, op, in, n_in));
    lathe_ir_node *node = lathe__graph_append(g);
    if (!node)
        return LATHE_E_NOMEM;
    node->op = op;
    node->n_in = info->n_in;
    node->n_out = info->n_out;
    node->self = self;
    node->label = lathe_arena_strdup(&g->arena, label);
    if (attrs)
        node->attrs = *attrs;
    for (int32_t i = 0; i < n_in; i++)
        node->in[i] = in[i];
    lathe_op_problem problem;
    lathe_status status = node->label ? LATHE_OK : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = infer(g, node, &problem);
    if (status == LATHE_OK && info->state != NULL && g->n_slots > 0) {
        status = add_states(g, info, g->n_nodes - 1);
        if (status == LATHE_OK)
            status = infer(g, &g->nodes[g->n_nodes - 1], &problem);
    }
    if (status != LATHE_OK) {
        g->n_nodes--;
        return status;
    }
    if (info->inplace_always)
        inplace_in = 0;
    return give_outputs(g, g->n_nodes - 1, problem.out,
                        inplace_in >= 0 ? in[inplace_in] : LATHE_NONE, out, n_out);
}

lathe_status lathe_graph_node(lathe_graph *g, int32_t op, const lathe_op_attrs *attrs,
                              const lathe_val *in, int32_t n_in, lathe_val *out, int32_t n_out,
                              int32_t inplace_in, const char *label)
{
    if (op < 0 || op >= LATHE_N_OPS)
        return lathe_error(LATHE_E_ARG, "node '%s': %d is not an op", label ? label : "", op);
    return lathe__graph_add(g, op, attrs, NULL, in, n_in, out, n_out, inplace_in, label);
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
    const lathe_val in[3] = {x, w, bias}, grouped[3] = {x, w, g->expert_first};
    const int is_grouped = g->n_experts > 0 && param >= 0 && g->params->rows[param]->n_experts > 0;
    if (is_grouped && bias != LATHE_NONE)
        return lathe_error(LATHE_E_CONFIG, "the adapter adds a bias to '%s', and experts have none",
                           g->params->rows[param]->name);
    if (is_grouped)
        return lathe_graph_node(g, LATHE_OP_EXPERT_LINEAR, NULL, grouped, 3, out, 1, -1, label);
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

static lathe_status api_op(lathe_graph *g, const char *name, const lathe_op_attr *attrs,
                           int32_t n_attrs, const lathe_val *in, int32_t n_in, lathe_val *out,
                           int32_t n_out, const char *label)
{
    int32_t op = lathe_op_find(name);
    const lathe_op_source *source = g->params->ops;
    lathe_op_opened *opened = NULL;
    if (op >= 0) {
        lathe_op_attrs read;
        LATHE_TRY(lathe_op_attrs_read(name, attrs, n_attrs, &read));
        return lathe_graph_node(g, op, &read, in, n_in, out, n_out, -1, label);
    }
    if (source == NULL)
        return lathe_error(LATHE_E_NOT_FOUND,
                           "op '%s' is none of the core's, and this graph has no plugins", name);
    LATHE_TRY(source->open(source->arg, name, attrs, n_attrs, &g->arena, &op, &opened));
    opened->next = g->opened;
    g->opened = opened;
    return lathe__graph_add(g, op, NULL, opened->self, in, n_in, out, n_out, -1, label);
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
                                        .rng_stream = api_rng_stream,
                                        .op = api_op};
    return &api;
}

/* Walks from a value back to the norm or the linear layer that makes its channels. */
#include "run/calibrate/channel_source.h"

/* Where the walk is: a value, and for each channel of the first one its place in it. */
typedef struct walk {
    const lathe_graph *g;
    lathe_val v;
    int32_t reader;  /* node that the walk came from; -1: the linear layers of the first value */
    int32_t as_rows; /* channels are the rows of v, not its columns */
    int32_t *from;   /* [n] */
    int64_t n;
} walk;

/* Whether a cut of other rows than those that the walk is about. */
static int cuts_other_rows(const walk *w, const lathe_ir_node *n)
{
    if (n->op != LATHE_OP_SLICE || !w->as_rows)
        return 0;
    for (int64_t i = 0; i < w->n; i++)
        if (w->from[i] >= n->attrs.start && w->from[i] < n->attrs.start + n->attrs.count)
            return 0;
    return 1;
}

static int reads(const lathe_ir_node *n, lathe_val v)
{
    for (int32_t k = 0; k < n->n_in; k++)
        if (n->in[k] == v)
            return 1;
    return 0;
}

/* A linear layer whose input is v, with a weight of its own. */
static int is_layer_of(const lathe_ir_node *n, lathe_val v)
{
    return (n->op == LATHE_OP_LINEAR || n->op == LATHE_OP_LINEAR_GELU) && n->in[0] == v &&
           n->in[1] != v;
}

/* Whether nothing else reads the walk's channels of its value. */
static int has_no_other_reader(const walk *w)
{
    if (w->g->values[w->v].is_output || lathe_graph_is_persistent(w->g, w->v))
        return 0;
    for (int32_t i = 0; i < w->g->n_nodes; i++) {
        const lathe_ir_node *n = &w->g->nodes[i];
        if (!reads(n, w->v) || i == w->reader)
            continue;
        if (w->reader < 0 ? !is_layer_of(n, w->v) : !cuts_other_rows(w, n))
            return 0;
    }
    return 1;
}

/* The parameter of a value, which only `node` reads; -1: none, or it is shared. */
static int32_t own_param(const lathe_graph *g, lathe_val v, int32_t node)
{
    if (v == LATHE_NONE ||
        (g->values[v].kind != LATHE_VALUE_PARAM && g->values[v].kind != LATHE_VALUE_MASTER))
        return -1;
    const int32_t param = g->values[v].param;
    for (int32_t i = 0; i < g->n_nodes; i++)
        for (int32_t k = 0; i != node && k < g->nodes[i].n_in; k++)
            if (g->nodes[i].in[k] != LATHE_NONE && g->values[g->nodes[i].in[k]].param == param)
                return -1;
    return param;
}

/* ---- the end of the walk ---- */

/* The weight and the bias of a source; 0: they are no parameters of its own. */
static int take_params(const lathe_graph *g, int32_t node, lathe_val weight, lathe_val bias,
                       lathe_channel_source *out)
{
    out->weight = own_param(g, weight, node);
    out->bias = own_param(g, bias, node);
    out->node = out->weight < 0 || (bias != LATHE_NONE && out->bias < 0) ? -1 : node;
    if (out->node >= 0)
        out->n = (int32_t)g->params->rows[out->weight]->desc.dims[0];
    return out->node >= 0;
}

/* A norm; its weight repeats if it is shorter than a row. */
static void take_norm(walk *w, int32_t node, lathe_channel_source *out)
{
    const lathe_ir_node *n = &w->g->nodes[node];
    const int adds = n->op == LATHE_OP_ADD_RMSNORM || n->op == LATHE_OP_ADD_LAYERNORM;
    const int has_bias = n->op == LATHE_OP_LAYERNORM || n->op == LATHE_OP_ADD_LAYERNORM;
    if (w->as_rows || n->out[adds] != w->v ||
        !take_params(w->g, node, n->in[1 + adds], has_bias ? n->in[2 + adds] : LATHE_NONE, out))
        return;
    out->is_norm = 1;
    out->offset_one = n->attrs.offset_one != 0;
    for (int64_t i = 0; i < w->n; i++)
        w->from[i] %= out->n;
}

static void take_linear(walk *w, int32_t node, lathe_channel_source *out)
{
    const lathe_ir_node *n = &w->g->nodes[node];
    if (!w->as_rows)
        (void)take_params(w->g, node, n->in[1], n->in[2], out);
}

/* ---- one step back ---- */

static int go_to(walk *w, int32_t node, lathe_val v)
{
    w->reader = node;
    w->v = v;
    return v != LATHE_NONE;
}

/* The place of the values of each query head: in v, or after q and k in a joined input. */
static int through_attention(walk *w, int32_t node)
{
    const lathe_ir_node *n = &w->g->nodes[node];
    const int32_t size = n->attrs.value_dim > 0 ? n->attrs.value_dim : n->attrs.head_dim;
    const int32_t heads = n->attrs.n_heads, kv = n->attrs.n_kv_heads;
    if (w->as_rows || n->out[0] != w->v || size < 1 || kv < 1 || heads % kv != 0 ||
        w->n != (int64_t)heads * size)
        return 0;
    const int32_t first = n->attrs.fused_qkv ? (heads + kv) * size : 0;
    for (int64_t i = 0; i < w->n; i++) {
        const int32_t head = w->from[i] / size;
        w->from[i] = first + head / (heads / kv) * size + w->from[i] % size;
    }
    return go_to(w, node, n->attrs.fused_qkv ? n->in[0] : n->in[2]);
}

static int through_slice(walk *w, int32_t node)
{
    const lathe_ir_node *n = &w->g->nodes[node];
    if (!w->as_rows)
        return 0;
    for (int64_t i = 0; i < w->n; i++)
        w->from[i] += (int32_t)n->attrs.start;
    return go_to(w, node, n->in[0]);
}

static int through_gather(walk *w, int32_t node)
{
    const lathe_ir_node *n = &w->g->nodes[node];
    const lathe_ir_value *order = &w->g->values[n->in[1]];
    if (!w->as_rows || order->kind != LATHE_VALUE_CONST || order->data == NULL)
        return 0;
    for (int64_t i = 0; i < w->n; i++)
        w->from[i] = ((const int32_t *)order->data)[w->from[i]];
    for (int64_t i = 0; i < w->n; i++)
        if (w->from[i] < 0)
            return 0;
    return go_to(w, node, n->in[0]);
}

/* Goes on to the input of the node that makes w->v. 0: the walk ends there, in *out or with none.
 */
static int step_back(walk *w, lathe_channel_source *out)
{
    const int32_t node = w->g->values[w->v].node;
    if (node < 0)
        return 0;
    const lathe_ir_node *n = &w->g->nodes[node];
    switch (n->op) {
    case LATHE_OP_RMSNORM:
    case LATHE_OP_LAYERNORM:
    case LATHE_OP_ADD_RMSNORM:
    case LATHE_OP_ADD_LAYERNORM:
        take_norm(w, node, out);
        return 0;
    case LATHE_OP_LINEAR:
        take_linear(w, node, out);
        return 0;
    case LATHE_OP_SWIGLU:
    case LATHE_OP_MUL: /* activation(gate) * up, as decoders write it */
        return n->in[0] != n->in[1] && go_to(w, node, n->in[1]);
    case LATHE_OP_ATTENTION:
        return through_attention(w, node);
    case LATHE_OP_TRANSPOSE:
        w->as_rows = !w->as_rows;
        return go_to(w, node, n->in[0]);
    case LATHE_OP_SLICE:
        return through_slice(w, node);
    case LATHE_OP_GATHER:
        return through_gather(w, node);
    case LATHE_OP_CAST:
    case LATHE_OP_COPY:
        return go_to(w, node, n->in[0]);
    default:
        return 0;
    }
}

void lathe__channel_source_find(const lathe_graph *g, lathe_val v, int32_t *from,
                                lathe_channel_source *out)
{
    walk w = {.g = g, .v = v, .reader = -1, .from = from, .n = g->values[v].desc.dims[1]};
    *out = (lathe_channel_source){.node = -1, .weight = -1, .bias = -1, .from = from};
    for (int64_t i = 0; i < w.n; i++)
        from[i] = (int32_t)i;
    while (has_no_other_reader(&w) && step_back(&w, out))
        continue;
}

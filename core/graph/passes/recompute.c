/* Gradient checkpointing: backward nodes read recomputed copies of forward values that are not
 * kept. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/ir/op_info.h"
#include "graph/passes/passes.h"

typedef struct recompute {
    lathe_graph *g;
    int32_t mode;
    lathe_ir_node *old; /* the node array before the pass */
    int32_t n_old;
    int32_t *producer; /* [n_values] producer in `old`, -1: none */
    char *kept;        /* [n_values] another layer or block reads it: stays in memory */
    lathe_val *clone;  /* [n_values] its recomputed copy, if it exists */
    int32_t n_values;
    lathe_status status;
} recompute;

/* Whether node n is in a region that the mode recomputes. */
static int in_region(const recompute *r, const lathe_ir_node *n)
{
    if (n->phase != LATHE_PHASE_FORWARD)
        return 0;
    const lathe_op_info *info = lathe_op_info_get(n->op);
    if (info->recomputed)
        return 1;
    switch (r->mode) {
    case LATHE_RECOMPUTE_LAYER:
        return n->layer >= 0;
    case LATHE_RECOMPUTE_ATTENTION:
        return n->layer >= 0 && n->block == LATHE_BLOCK_ATTENTION;
    case LATHE_RECOMPUTE_MLP:
        return n->layer >= 0 && n->block == LATHE_BLOCK_MLP;
    case LATHE_RECOMPUTE_POINTWISE:
        return n->layer >= 0 && info->cheap;
    default:
        return 0;
    }
}

static int same_region(const recompute *r, const lathe_ir_node *a, const lathe_ir_node *b)
{
    return a->layer == b->layer && (r->mode == LATHE_RECOMPUTE_LAYER || a->block == b->block);
}

/* Marks boundary values, which stay in memory: those that a forward node outside the producer's
 * region reads. Each pointwise node is its own region, and its inputs, not its outputs, are the
 * boundary. */
static void mark_kept(recompute *r)
{
    if (r->mode == LATHE_RECOMPUTE_POINTWISE)
        return;
    for (int32_t i = 0; i < r->n_old; i++) {
        const lathe_ir_node *n = &r->old[i];
        if (n->phase != LATHE_PHASE_FORWARD)
            continue;
        for (int32_t k = 0; k < n->n_in; k++) {
            const lathe_val v = n->in[k];
            const int32_t p = v == LATHE_NONE ? -1 : r->producer[v];
            if (p >= 0 && !lathe_op_info_get(r->old[p].op)->recomputed &&
                !same_region(r, &r->old[p], n))
                r->kept[v] = 1;
        }
    }
}

static int can_drop(const recompute *r, lathe_val v)
{
    if (v == LATHE_NONE || v >= r->n_values || r->producer[v] < 0 || r->kept[v] ||
        r->g->values[v].is_output || lathe_graph_is_persistent(r->g, v))
        return 0;
    return in_region(r, &r->old[r->producer[v]]);
}

/* The value that a backward node reads instead of v: a recomputed copy, created if needed. */
static lathe_val recomputed(recompute *r, lathe_val v)
{
    if (!can_drop(r, v) || r->status != LATHE_OK)
        return v;
    if (r->clone[v] != LATHE_NONE)
        return r->clone[v];
    lathe_ir_node copy = r->old[r->producer[v]];
    for (int32_t k = 0; k < copy.n_in; k++)
        copy.in[k] = recomputed(r, copy.in[k]);
    copy.phase = LATHE_PHASE_RECOMPUTE;
    lathe_ir_node *node = lathe__graph_append(r->g);
    if (!node) {
        r->status = LATHE_E_NOMEM;
        return v;
    }
    *node = copy;
    const int32_t index = r->g->n_nodes - 1;
    for (int32_t k = 0; k < copy.n_out && r->status == LATHE_OK; k++) {
        if (copy.out[k] == LATHE_NONE)
            continue;
        lathe_ir_value value = r->g->values[copy.out[k]];
        value.node = index;
        value.share = LATHE_NONE;
        const lathe_val twin = lathe__graph_value(r->g, &value);
        if (twin == LATHE_NONE)
            r->status = LATHE_E_NOMEM;
        r->clone[copy.out[k]] = twin;
        r->g->nodes[index].out[k] = twin;
    }
    return r->clone[v];
}

static void rebuild(recompute *r)
{
    for (int32_t i = 0; i < r->n_old && r->status == LATHE_OK; i++) {
        lathe_ir_node n = r->old[i];
        if (n.phase == LATHE_PHASE_BACKWARD)
            for (int32_t k = 0; k < n.n_in; k++)
                n.in[k] = recomputed(r, n.in[k]);
        lathe_ir_node *node = lathe__graph_append(r->g);
        if (!node) {
            r->status = LATHE_E_NOMEM;
            return;
        }
        *node = n;
        for (int32_t k = 0; k < n.n_out; k++)
            if (n.out[k] != LATHE_NONE && r->g->values[n.out[k]].kind == LATHE_VALUE_TEMP)
                r->g->values[n.out[k]].node = r->g->n_nodes - 1;
    }
}

lathe_status lathe_pass_recompute(lathe_graph *g, int32_t mode)
{
    recompute r = {
        .g = g, .mode = mode, .old = g->nodes, .n_old = g->n_nodes, .n_values = g->n_values};
    const size_t n = (size_t)g->n_values + 1;
    r.producer = malloc(n * sizeof *r.producer);
    r.kept = calloc(n, 1);
    r.clone = malloc(n * sizeof *r.clone);
    r.status = r.producer && r.kept && r.clone ? LATHE_OK : LATHE_E_NOMEM;
    if (r.status == LATHE_OK) {
        for (lathe_val v = 0; v < g->n_values; v++) {
            r.producer[v] = g->values[v].node;
            r.clone[v] = LATHE_NONE;
        }
        mark_kept(&r);
        g->nodes = NULL;
        g->n_nodes = g->cap_nodes = 0;
        rebuild(&r);
        free(r.old);
    }
    free(r.producer);
    free(r.kept);
    free(r.clone);
    return r.status == LATHE_OK ? lathe_pass_dead(g) : r.status;
}

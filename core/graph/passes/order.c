/* Sorts nodes (a stable topological sort) and removes dead nodes. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/passes/passes.h"

/* Order constraints between nodes: an edge a -> b means that b must come after a. */
typedef struct edges {
    int32_t *from, *to;
    int32_t n, capacity;
    int32_t *pending; /* [n_nodes] number of unsatisfied edges into each node */
} edges;

static int add_edge(edges *e, int32_t from, int32_t to)
{
    if (from < 0 || from == to)
        return 1;
    if (e->n == e->capacity) {
        const int32_t capacity = e->capacity ? 2 * e->capacity : 1024;
        int32_t *f = realloc(e->from, (size_t)capacity * sizeof *f);
        if (f)
            e->from = f;
        int32_t *t = realloc(e->to, (size_t)capacity * sizeof *t);
        if (t)
            e->to = t;
        if (!f || !t)
            return 0;
        e->capacity = capacity;
    }
    e->from[e->n] = from;
    e->to[e->n++] = to;
    e->pending[to]++;
    return 1;
}

static int collect(const lathe_graph *g, edges *e, int32_t *last_writer)
{
    for (lathe_val v = 0; v < g->n_values; v++)
        last_writer[v] = -1;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *n = &g->nodes[i];
        for (int32_t k = 0; k < n->n_in; k++)
            if (n->in[k] != LATHE_NONE && !add_edge(e, g->values[n->in[k]].node, i))
                return 0;
        for (int32_t k = 0; k < n->n_out; k++) {
            if (n->acc[k] != LATHE_NONE && !add_edge(e, g->values[n->acc[k]].node, i))
                return 0;
            if (n->out[k] == LATHE_NONE || g->values[n->out[k]].kind == LATHE_VALUE_TEMP)
                continue;
            /* several writers of one gradient keep their order, so that sums are repeatable */
            if (!add_edge(e, last_writer[n->out[k]], i))
                return 0;
            last_writer[n->out[k]] = i;
        }
    }
    return 1;
}

/* Kahn's algorithm, always taking the ready node with the smallest old index. */
static lathe_status order_nodes(const lathe_graph *g, const edges *e, int32_t *order)
{
    int32_t placed = 0;
    char *done = calloc((size_t)g->n_nodes + 1, 1);
    int32_t *head = malloc(((size_t)g->n_nodes + 1) * sizeof *head);
    int32_t *next = malloc(((size_t)e->n + 1) * sizeof *next);
    lathe_status status = LATHE_OK;
    if (!done || !head || !next) {
        status = lathe_error(LATHE_E_NOMEM, "no memory to sort the graph");
        goto out;
    }
    for (int32_t i = 0; i < g->n_nodes; i++)
        head[i] = -1;
    for (int32_t k = 0; k < e->n; k++) {
        next[k] = head[e->from[k]];
        head[e->from[k]] = k;
    }
    int32_t i = 0;
    while (i < g->n_nodes) {
        if (done[i] || e->pending[i] > 0) {
            i++;
            continue;
        }
        done[i] = 1;
        order[placed++] = i;
        int32_t restart = i + 1;
        for (int32_t k = head[i]; k >= 0; k = next[k])
            if (--e->pending[e->to[k]] == 0 && e->to[k] < restart)
                restart = e->to[k];
        i = restart;
    }
    if (placed != g->n_nodes)
        status =
            lathe_error(LATHE_E_STATE, "the graph has a cycle: %d of %d nodes could be ordered",
                        placed, g->n_nodes);
out:
    free(done);
    free(head);
    free(next);
    return status;
}

/* Puts the node array into the given order (n old indices) and updates the producers of values. */
static lathe_status apply_order(lathe_graph *g, const int32_t *order, int32_t n)
{
    lathe_ir_node *nodes = malloc(((size_t)n + 1) * sizeof *nodes);
    if (!nodes)
        return lathe_error(LATHE_E_NOMEM, "no memory to reorder the graph");
    for (int32_t i = 0; i < n; i++) {
        nodes[i] = g->nodes[order[i]];
        for (int32_t k = 0; k < nodes[i].n_out; k++)
            if (nodes[i].out[k] != LATHE_NONE &&
                g->values[nodes[i].out[k]].kind == LATHE_VALUE_TEMP)
                g->values[nodes[i].out[k]].node = i;
    }
    free(g->nodes);
    g->nodes = nodes;
    g->n_nodes = n;
    g->cap_nodes = n + 1;
    return LATHE_OK;
}

lathe_status lathe__graph_sort(lathe_graph *g)
{
    edges e = {.pending = calloc((size_t)g->n_nodes + 1, sizeof(int32_t))};
    int32_t *last_writer = malloc(((size_t)g->n_values + 1) * sizeof *last_writer);
    int32_t *order = malloc(((size_t)g->n_nodes + 1) * sizeof *order);
    lathe_status status = LATHE_E_NOMEM;
    if (e.pending && last_writer && order && collect(g, &e, last_writer))
        status = order_nodes(g, &e, order);
    if (status == LATHE_OK)
        status = apply_order(g, order, g->n_nodes);
    free(e.from);
    free(e.to);
    free(e.pending);
    free(last_writer);
    free(order);
    return status;
}

/* A node is live if it writes persistent memory, or if a live node or the caller reads an
 * output. */
static int is_live(const lathe_graph *g, const lathe_ir_node *n, const char *wanted)
{
    for (int32_t k = 0; k < n->n_out; k++)
        if (n->out[k] != LATHE_NONE && (wanted[n->out[k]] || g->values[n->out[k]].is_output ||
                                        lathe_graph_is_persistent(g, n->out[k])))
            return 1;
    return 0;
}

lathe_status lathe_pass_dead(lathe_graph *g)
{
    char *wanted = calloc((size_t)g->n_values + 1, 1);
    int32_t *order = malloc(((size_t)g->n_nodes + 1) * sizeof *order);
    int32_t kept = g->n_nodes;
    lathe_status status = LATHE_E_NOMEM;
    if (wanted && order) {
        for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
            const lathe_ir_node *n = &g->nodes[i];
            if (!is_live(g, n, wanted))
                continue;
            order[--kept] = i;
            for (int32_t k = 0; k < n->n_in; k++)
                if (n->in[k] != LATHE_NONE)
                    wanted[n->in[k]] = 1;
            for (int32_t k = 0; k < n->n_out; k++)
                if (n->acc[k] != LATHE_NONE)
                    wanted[n->acc[k]] = 1;
        }
        status = apply_order(g, order + kept, g->n_nodes - kept);
    }
    free(wanted);
    free(order);
    return status;
}

/* Places values in memory by their lifetimes: the largest first, each at the lowest offset that is
 * free during its whole lifetime (free_space.h). */
#include "graph/passes/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/ir/op_info.h"
#include "graph/passes/free_space.h"

/* One block of memory: a family of values that share it, or the scratch of a node. */
typedef struct block {
    int64_t bytes, offset;
    int32_t first, last; /* first and last node of its lifetime, inclusive */
    int32_t scratch_of;  /* node, or -1 */
    lathe_val root;      /* value, or LATHE_NONE */
} block;

static int64_t aligned(int64_t bytes)
{
    return (bytes + LATHE_PLAN_ALIGN - 1) / LATHE_PLAN_ALIGN * LATHE_PLAN_ALIGN;
}

static void touch(block *b, int32_t node)
{
    if (node < b->first)
        b->first = node;
    if (node > b->last)
        b->last = node;
}

/* Finds the lifetime of each value, combined by the value whose memory it uses. */
static void find_lives(const lathe_graph *g, block *by_root)
{
    for (lathe_val v = 0; v < g->n_values; v++) {
        by_root[v] = (block){0, 0, INT32_MAX, -1, -1, v};
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *n = &g->nodes[i];
        for (int32_t k = 0; k < n->n_in; k++)
            if (n->in[k] != LATHE_NONE)
                touch(&by_root[lathe_graph_root(g, n->in[k])], i);
        for (int32_t k = 0; k < n->n_out; k++) {
            if (n->out[k] == LATHE_NONE)
                continue;
            block *b = &by_root[lathe_graph_root(g, n->out[k])];
            touch(b, i);
            if (g->values[n->out[k]].is_output)
                touch(b, g->n_nodes);
        }
    }
}

/* Collects the blocks of one memory; returns their number. */
static int32_t value_blocks(const lathe_graph *g, block *by_root, int32_t on_host, block *out)
{
    int32_t n_out = 0;
    for (lathe_val v = 0; v < g->n_values; v++) {
        const lathe_ir_value *value = &g->values[v];
        if (value->kind != LATHE_VALUE_TEMP || by_root[v].last < 0 || value->on_host != on_host)
            continue;
        by_root[v].bytes = aligned(lathe_desc_bytes(&g->values[v].desc));
        out[n_out++] = by_root[v];
    }
    return n_out;
}

static int larger_first(const void *a, const void *b)
{
    const block *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->root != y->root)
        return x->root < y->root ? -1 : 1;
    return x->scratch_of < y->scratch_of ? -1 : x->scratch_of > y->scratch_of;
}

/* Places the blocks in their order. */
static lathe_status place(block *blocks, int32_t n, int32_t n_nodes, int64_t *out_peak)
{
    lathe_free_space *space = NULL;
    *out_peak = 0;
    LATHE_TRY(lathe_free_space_create(n_nodes + 1, &space)); /* outputs live after the last node */
    qsort(blocks, (size_t)n, sizeof *blocks, larger_first);
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i < n && status == LATHE_OK; i++) {
        block *b = &blocks[i];
        status = lathe_free_space_take(space, b->first, b->last, b->bytes, &b->offset);
        if (b->offset + b->bytes > *out_peak)
            *out_peak = b->offset + b->bytes;
    }
    lathe_free_space_destroy(space);
    return status;
}

static int64_t held_inputs(const lathe_graph *g)
{
    int64_t bytes = 0;
    for (lathe_val v = 0; v < g->n_values; v++)
        if (g->values[v].kind == LATHE_VALUE_INPUT || g->values[v].kind == LATHE_VALUE_CONST)
            bytes += aligned(lathe_desc_bytes(&g->values[v].desc));
    return bytes;
}

static void fill_offsets(lathe_plan *plan, const block *blocks, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (blocks[i].scratch_of >= 0)
            plan->scratch_offset[blocks[i].scratch_of] = blocks[i].offset;
        else
            plan->offset[blocks[i].root] = blocks[i].offset;
    }
}

/* Places host memory, then device memory: first without scratch, for activation_bytes, then with
 * it. */
static lathe_status place_all(lathe_plan *plan, const lathe_graph *g, block *by_root,
                              const int64_t *scratch_bytes, block *blocks)
{
    int32_t n = value_blocks(g, by_root, 1, blocks);
    LATHE_TRY(place(blocks, n, g->n_nodes, &plan->host_bytes));
    fill_offsets(plan, blocks, n);
    n = value_blocks(g, by_root, 0, blocks);
    LATHE_TRY(place(blocks, n, g->n_nodes, &plan->activation_bytes));
    for (int32_t i = 0; i < g->n_nodes; i++)
        if (scratch_bytes && scratch_bytes[i] > 0)
            blocks[n++] = (block){aligned(scratch_bytes[i]), 0, i, i, i, LATHE_NONE};
    LATHE_TRY(place(blocks, n, g->n_nodes, &plan->arena_bytes));
    plan->input_bytes = held_inputs(g);
    fill_offsets(plan, blocks, n);
    for (lathe_val v = 0; v < g->n_values; v++)
        plan->offset[v] = plan->offset[lathe_graph_root(g, v)];
    return LATHE_OK;
}

lathe_status lathe_plan_create(const lathe_graph *g, const int64_t *scratch_bytes, lathe_plan **out)
{
    const size_t n_values = (size_t)g->n_values + 1, n_nodes = (size_t)g->n_nodes + 1;
    lathe_plan *plan = calloc(1, sizeof *plan);
    block *by_root = calloc(n_values, sizeof *by_root);
    block *blocks = malloc((n_values + n_nodes) * sizeof *blocks);
    lathe_status status = LATHE_OK;
    if (plan) {
        plan->offset = malloc(n_values * sizeof *plan->offset);
        plan->scratch_offset = calloc(n_nodes, sizeof *plan->scratch_offset);
    }
    if (!plan || !by_root || !blocks || !plan->offset || !plan->scratch_offset) {
        lathe_plan_destroy(plan);
        status = lathe_error(LATHE_E_NOMEM, "no memory to plan a graph of %d nodes", g->n_nodes);
        goto out;
    }
    plan->n_values = g->n_values;
    plan->n_nodes = g->n_nodes;
    for (int32_t v = 0; v < plan->n_values; v++)
        plan->offset[v] = -1;
    find_lives(g, by_root);
    status = place_all(plan, g, by_root, scratch_bytes, blocks);
    if (status == LATHE_OK)
        *out = plan;
    else
        lathe_plan_destroy(plan);
out:
    free(by_root);
    free(blocks);
    return status;
}

void lathe_plan_destroy(lathe_plan *plan)
{
    if (!plan)
        return;
    free(plan->offset);
    free(plan->scratch_offset);
    free(plan);
}

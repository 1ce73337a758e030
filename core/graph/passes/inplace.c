/* Makes shared memory legal, and lets more nodes share memory: the last pass before the plan.
 *
 * A node that reuses the memory of a value u (an accumulated gradient, an in-place output) is legal
 * if no later node reads u. If one does, the pass first copies u, and the node reuses the copy.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/ir/op_info.h"
#include "graph/passes/passes.h"

typedef struct inplace {
    lathe_graph *g;
    int32_t *last_read; /* [n_values] last node that reads the value; -1: none */
    lathe_ir_node *old;
    int32_t n_old;
    int32_t n_values;
} inplace;

static void find_reads(inplace *p)
{
    for (lathe_val v = 0; v < p->n_values; v++)
        p->last_read[v] = p->g->values[v].is_output ? p->n_old : -1;
    for (int32_t i = 0; i < p->n_old; i++) {
        const lathe_ir_node *n = &p->old[i];
        for (int32_t k = 0; k < n->n_in; k++)
            if (n->in[k] != LATHE_NONE && p->last_read[n->in[k]] < i)
                p->last_read[n->in[k]] = i;
        for (int32_t k = 0; k < n->n_out; k++)
            if (n->acc[k] != LATHE_NONE && p->last_read[n->acc[k]] < i)
                p->last_read[n->acc[k]] = i;
    }
}

/* Whether node n reads each element of u only where it writes that element. */
static int reads_in_step(const lathe_ir_node *n, lathe_val u)
{
    const uint32_t anywhere = lathe_op_info_get(n->op)->reads_anywhere;
    for (int32_t k = 0; k < n->n_in; k++)
        if (n->in[k] == u && anywhere & (1u << k))
            return 0;
    return 1;
}

/* Whether output k of node i (at index i of the old order) may take the memory of u. */
static int may_take(const inplace *p, int32_t i, int32_t k, lathe_val u)
{
    const lathe_ir_node *n = &p->old[i];
    if (p->last_read[u] > i || !reads_in_step(n, u))
        return 0;
    if (n->acc[k] == LATHE_NONE)
        return 1;
    for (int32_t j = 0; j < n->n_in; j++) /* the node adds to a value that it reads */
        if (n->in[j] == u)
            return 0;
    for (int32_t j = 0; j < n->n_out; j++)
        if (j != k && n->acc[j] == u)
            return 0;
    return 1;
}

static lathe_status insert_copy(inplace *p, const lathe_ir_node *user, lathe_val u, lathe_val *out)
{
    lathe_graph *g = p->g;
    g->layer = user->layer;
    g->block = user->block;
    g->phase = user->phase;
    const lathe_status status =
        lathe_graph_node(g, LATHE_OP_COPY, NULL, &u, 1, out, 1, -1, user->label);
    g->layer = -1;
    g->block = LATHE_BLOCK_NONE;
    g->phase = LATHE_PHASE_FORWARD;
    return status;
}

/* Lets output 0 reuse the memory of an input that is not read later, if the op allows it. */
static void share_more(inplace *p, int32_t i, lathe_ir_node *n)
{
    const lathe_op_info info = *lathe_op_info_get(n->op);
    lathe_graph *g = p->g;
    if (!info.inplace || n->out[0] == LATHE_NONE || n->out[0] >= p->n_values)
        return;
    lathe_ir_value *out = &g->values[n->out[0]];
    if (out->share != LATHE_NONE || out->kind != LATHE_VALUE_TEMP || n->write[0] != LATHE_WRITE_SET)
        return;
    for (int32_t k = 0; k < n->n_in; k++) {
        const lathe_val u = n->in[k];
        if (!(info.inplace & (1u << k)) || u == LATHE_NONE || u >= p->n_values ||
            p->last_read[u] > i || !reads_in_step(n, u) || lathe_graph_is_persistent(g, u) ||
            g->values[u].is_output || g->values[u].desc.dtype != out->desc.dtype ||
            lathe_desc_bytes(&g->values[u].desc) != lathe_desc_bytes(&out->desc))
            continue;
        out->share = u;
        return;
    }
}

static lathe_status rewrite_node(inplace *p, int32_t i)
{
    lathe_graph *g = p->g;
    lathe_ir_node n = p->old[i];
    for (int32_t k = 0; k < n.n_out; k++) {
        const lathe_val out = n.out[k];
        if (out == LATHE_NONE || g->values[out].kind != LATHE_VALUE_TEMP)
            continue;
        const lathe_val u = g->values[out].share;
        if (u == LATHE_NONE || lathe_graph_is_persistent(g, u) || may_take(p, i, k, u))
            continue;
        lathe_val copy;
        LATHE_TRY(insert_copy(p, &n, u, &copy));
        g->values[out].share = copy;
        if (n.acc[k] == u)
            n.acc[k] = copy;
        else
            for (int32_t j = 0; j < n.n_in; j++)
                if (n.in[j] == u && (lathe_op_info_get(n.op)->inplace & (1u << j)))
                    n.in[j] = copy;
    }
    share_more(p, i, &n);
    lathe_ir_node *node = lathe__graph_append(g);
    if (!node)
        return LATHE_E_NOMEM;
    *node = n;
    for (int32_t k = 0; k < n.n_out; k++)
        if (n.out[k] != LATHE_NONE && g->values[n.out[k]].kind == LATHE_VALUE_TEMP)
            g->values[n.out[k]].node = g->n_nodes - 1;
    return LATHE_OK;
}

lathe_status lathe_pass_inplace(lathe_graph *g)
{
    inplace p = {.g = g, .old = g->nodes, .n_old = g->n_nodes, .n_values = g->n_values};
    p.last_read = malloc(((size_t)g->n_values + 1) * sizeof *p.last_read);
    if (!p.last_read)
        return lathe_error(LATHE_E_NOMEM, "no memory to share values");
    find_reads(&p);
    g->nodes = NULL;
    g->n_nodes = g->cap_nodes = 0;
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i < p.n_old && status == LATHE_OK; i++)
        status = rewrite_node(&p, i);
    free(p.old);
    free(p.last_read);
    return status;
}

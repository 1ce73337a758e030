/* Merges the forward and backward of the head. HEAD_LOGPROB_BWD and HEAD_PICK_BWD also compute the
 * log-probabilities, so if the gradient of these does not depend on them (plain cross-entropy, the
 * forward divergence from a stored teacher: it is a constant), the forward node is not needed, and
 * the logits are computed once instead of twice. */
#include <stdlib.h>

#include "base/error.h"
#include "graph/passes/passes.h"

/* Whether value v depends on value `on`. Marks visited values in seen. */
static int depends(const lathe_graph *g, lathe_val v, lathe_val on, char *seen)
{
    if (v == LATHE_NONE || seen[v])
        return 0;
    if (v == on)
        return 1;
    seen[v] = 1;
    const int32_t node = g->values[v].node;
    if (node < 0)
        return 0;
    const lathe_ir_node *n = &g->nodes[node];
    for (int32_t k = 0; k < n->n_in; k++)
        if (depends(g, n->in[k], on, seen))
            return 1;
    for (int32_t k = 0; k < n->n_out; k++)
        if (depends(g, n->acc[k], on, seen))
            return 1;
    return 0;
}

/* The forward op whose results `op` repeats as its output 0; -1: none. */
static int32_t forward_of(int32_t op)
{
    return op == LATHE_OP_HEAD_LOGPROB_BWD ? LATHE_OP_HEAD_LOGPROB
           : op == LATHE_OP_HEAD_PICK_BWD  ? LATHE_OP_HEAD_PICK
                                           : -1;
}

/* Whether two nodes of the head compute the same log-probabilities of the same inputs. */
static int same_attrs(const lathe_op_attrs *a, const lathe_op_attrs *b)
{
    return a->alpha == b->alpha && a->beta == b->beta && a->softcap == b->softcap &&
           a->count == b->count && a->chunk_rows == b->chunk_rows && a->invariant == b->invariant;
}

/* An adapter's inputs follow the gradient in the backward. */
static int32_t find_forward(const lathe_graph *g, const lathe_ir_node *bwd)
{
    const int32_t op = forward_of(bwd->op);
    for (int32_t i = 0; op >= 0 && i < g->n_nodes; i++) {
        const lathe_ir_node *n = &g->nodes[i];
        if (n->op == op && n->in[0] == bwd->in[0] && n->in[1] == bwd->in[1] &&
            n->in[2] == bwd->in[2] && n->in[3] == bwd->in[4] && n->in[4] == bwd->in[5] &&
            n->in[5] == bwd->in[6] && same_attrs(&n->attrs, &bwd->attrs))
            return i;
    }
    return -1;
}

lathe_status lathe_pass_merge_head(lathe_graph *g)
{
    int32_t merged = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *bwd = &g->nodes[i];
        const int32_t f = find_forward(g, bwd);
        if (f < 0)
            continue;
        const lathe_val logp = g->nodes[f].out[0], by_product = bwd->out[0];
        char *seen = calloc((size_t)g->n_values + 1, 1);
        if (!seen)
            return lathe_error(LATHE_E_NOMEM, "no memory to merge the head");
        const int dependent = depends(g, bwd->in[3], logp, seen);
        free(seen);
        if (dependent)
            continue;
        for (int32_t j = 0; j < g->n_nodes; j++)
            for (int32_t k = 0; k < g->nodes[j].n_in; k++)
                if (g->nodes[j].in[k] == logp)
                    g->nodes[j].in[k] = by_product;
        g->values[by_product].is_output |= g->values[logp].is_output;
        g->values[logp].is_output = 0;
        merged = 1;
    }
    if (!merged)
        return LATHE_OK;
    LATHE_TRY(lathe__graph_sort(g));
    return lathe_pass_dead(g);
}

/* Finds the nodes of a graph that use gradients. */
#include "exec/store/grad_lives.h"

/* Node i uses value v; widens the life of its row if it is a gradient. */
static void note(const lathe_graph *g, int32_t i, lathe_val v, lathe_grad_life *rows)
{
    if (v == LATHE_NONE)
        return;
    const lathe_ir_value *root = &g->values[lathe_graph_root(g, v)];
    if (root->kind != LATHE_VALUE_GRAD)
        return;
    lathe_grad_life *row = &rows[root->param];
    row->first = row->last < 0 ? i : row->first;
    row->last = i;
}

void lathe_grad_lives(const lathe_graph *g, int32_t n_rows, lathe_grad_life *out)
{
    for (int32_t r = 0; r < n_rows; r++)
        out[r] = (lathe_grad_life){0, -1};
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *n = &g->nodes[i];
        for (int32_t k = 0; k < n->n_in; k++)
            note(g, i, n->in[k], out);
        for (int32_t k = 0; k < n->n_out; k++)
            note(g, i, n->out[k], out);
    }
}

int32_t lathe_grads_last_use(const lathe_store *store, const lathe_grad_life *lives, int64_t begin,
                             int64_t end)
{
    int32_t last = -1;
    for (int32_t i = 0; i < store->n_rows; i++) {
        const int64_t at = store->rows[i].grad;
        const int64_t bytes = store->rows[i].held[LATHE_OF_GRADIENT].n *
                              lathe_dtype_bytes(lathe_params_grad_dtype(store->params, i));
        if (at >= 0 && at < end && begin < at + bytes && lives[i].last > last)
            last = lives[i].last;
    }
    return last;
}

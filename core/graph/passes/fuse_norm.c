/* Fuses a norm with the ADD directly before it; together they are a residual connection:
 *
 *   x = a + b
 *   y = norm(x)     one node that computes both
 */
#include "graph/passes/fusion.h"

static int is_norm(const lathe_ir_node *n)
{
    return n->op == LATHE_OP_RMSNORM || n->op == LATHE_OP_LAYERNORM;
}

/* Makes the fused node. Its inputs are those of the sum, then those of the norm without x; its
 * outputs are the sum's result, then those of the norm. */
static lathe_ir_node joined(const lathe_ir_node *sum, const lathe_ir_node *norm)
{
    lathe_ir_node n = *norm;
    n.op = norm->op == LATHE_OP_RMSNORM ? LATHE_OP_ADD_RMSNORM : LATHE_OP_ADD_LAYERNORM;
    n.n_in++;
    n.n_out++;
    n.in[0] = sum->in[0];
    n.in[1] = sum->in[1];
    for (int32_t k = 1; k < norm->n_in; k++)
        n.in[k + 1] = norm->in[k];
    n.out[0] = sum->out[0];
    for (int32_t k = 0; k < norm->n_out; k++)
        n.out[k + 1] = norm->out[k];
    return n;
}

static void take(lathe_fusion *f, int32_t i)
{
    const lathe_graph *g = f->g;
    const lathe_ir_node *norm = &g->nodes[i], *sum = norm - 1;
    if (i == 0 || !is_norm(norm) || sum->op != LATHE_OP_ADD || sum->out[0] != norm->in[0] ||
        sum->phase != norm->phase || !lathe__fusion_is_plain(g, sum) ||
        !lathe__fusion_is_plain(g, norm))
        return;
    const lathe_ir_node fused = joined(sum, norm);
    (void)lathe__fusion_join(f, &fused, i, i - 1);
}

lathe_status lathe_pass_add_norm(lathe_graph *g, lathe_offers_fn offers, void *arg)
{
    lathe_fusion f;
    lathe__fusion_open(g, offers, arg, &f);
    for (int32_t i = 0; i < g->n_nodes && f.status == LATHE_OK; i++)
        take(&f, i);
    lathe__fusion_close(&f);
    return f.status;
}

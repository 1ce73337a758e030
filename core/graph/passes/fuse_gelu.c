/* Fuses LINEAR with the GELU_TANH of its result, and LINEAR_DX with the GELU_TANH_BWD after it.
 *
 *   h = gelu(z = x W1^T + b)    one node; z stays an output if another node reads it
 *   y = h W2^T
 *   dz = (dy W2) * gelu'(z)     one node, at the place of GELU_TANH_BWD. A node between the two
 *                               reads h for dW2, so h can be freed before dz is allocated
 */
#include "graph/passes/fusion.h"

/* The node of `op`, a plain product, that computes v; -1 if v comes from another kind of node. */
static int32_t product_of(const lathe_fusion *f, lathe_val v, int32_t op)
{
    const int32_t i = v == LATHE_NONE ? -1 : f->g->values[v].node;
    const lathe_ir_node *n = i < 0 ? NULL : &f->g->nodes[i];
    return n && n->op == op && !f->gone[i] && n->attrs.fp8 == 0 && lathe__fusion_is_plain(f->g, n)
               ? i
               : -1;
}

static void take_forward(lathe_fusion *f, int32_t i)
{
    const lathe_ir_node *gelu = &f->g->nodes[i];
    const lathe_val z = gelu->in[0];
    const int32_t p = product_of(f, z, LATHE_OP_LINEAR);
    if (p < 0 || p + 1 != i || f->g->nodes[p].phase != gelu->phase ||
        !lathe__fusion_is_plain(f->g, gelu))
        return;
    lathe_ir_node fused = f->g->nodes[p];
    fused.op = LATHE_OP_LINEAR_GELU;
    fused.n_out = 2;
    fused.out[0] = gelu->out[0];
    fused.out[1] = f->reads[z] > 1 || f->g->values[z].is_output ? z : LATHE_NONE;
    (void)lathe__fusion_join(f, &fused, p, i);
}

/* Whether v still has the same content at node `at` as at node `from`, without needing more
 * memory: v is needed that long anyway, or v is needed for one more node and is smaller than
 * `bytes`, the memory that the fusion saves at that node. */
static int waits(const lathe_fusion *f, lathe_val v, int32_t from, int32_t at, int64_t bytes)
{
    const lathe_graph *g = f->g;
    const lathe_val root = lathe_graph_root(g, v);
    for (int32_t i = from + 1; i < at; i++)
        for (int32_t k = 0; k < g->nodes[i].n_out; k++) {
            const lathe_val out = g->nodes[i].out[k];
            if (out != LATHE_NONE && lathe_graph_root(g, out) == root)
                return 0;
        }
    return g->values[root].kind != LATHE_VALUE_TEMP || f->last_read[v] >= at ||
           (f->last_read[v] == at - 1 && lathe_desc_bytes(&g->values[root].desc) <= bytes);
}

static void take_backward(lathe_fusion *f, int32_t i)
{
    const lathe_ir_node *gelu = &f->g->nodes[i];
    const lathe_val dh = gelu->in[0];
    const int32_t p = product_of(f, dh, LATHE_OP_LINEAR_DX);
    const int64_t bytes = lathe_desc_bytes(&f->g->values[dh].desc);
    if (p < 0 || f->reads[dh] != 1 || f->g->values[dh].is_output ||
        !lathe__fusion_is_plain(f->g, gelu) || !waits(f, f->g->nodes[p].in[0], p, i, bytes) ||
        !waits(f, f->g->nodes[p].in[1], p, i, bytes))
        return;
    lathe_ir_node fused = *gelu;
    fused.op = LATHE_OP_LINEAR_DX_GELU;
    fused.n_in = 3;
    fused.in[0] = f->g->nodes[p].in[0];
    fused.in[1] = f->g->nodes[p].in[1];
    fused.in[2] = gelu->in[1];
    fused.attrs = f->g->nodes[p].attrs;
    fused.label = f->g->nodes[p].label;
    (void)lathe__fusion_join(f, &fused, i, p);
}

lathe_status lathe_pass_gelu(lathe_graph *g, lathe_offers_fn offers, void *arg)
{
    lathe_fusion f;
    lathe__fusion_open(g, offers, arg, &f);
    for (int32_t i = 0; i < g->n_nodes && f.status == LATHE_OK; i++) {
        if (g->nodes[i].op == LATHE_OP_GELU_TANH)
            take_forward(&f, i);
        else if (g->nodes[i].op == LATHE_OP_GELU_TANH_BWD)
            take_backward(&f, i);
    }
    lathe__fusion_close(&f);
    return f.status;
}

/* Lets products read a quantized weight from its planes:
 *
 *   W = dequant(planes), y = x W^T      becomes      y = x planes^T
 *
 * A DEQUANT without readers is then removed. */
#include "passes/fusion.h"

#include "lathe/packed.h"

/* The inputs of a node that are weights of products: bit k for input k. */
static uint32_t weights_of(const lathe_ir_node *n)
{
    switch (n->op) {
    case LATHE_OP_LINEAR:
    case LATHE_OP_LINEAR_DX:
        return n->attrs.fp8 == 0 ? 1u << 1 : 0;
    default:
        return 0;
    }
}

/* The node that decodes v; NULL: none does. */
static const lathe_ir_node *decoder_of(const lathe_graph *g, lathe_val v)
{
    const int32_t i =
        v == LATHE_NONE || g->values[v].kind != LATHE_VALUE_TEMP ? -1 : g->values[v].node;
    return i >= 0 && g->nodes[i].op == LATHE_OP_DEQUANT ? &g->nodes[i] : NULL;
}

lathe_status lathe_pass_packed(lathe_graph *g, lathe_offers_fn offers, void *arg, int32_t *out_n)
{
    *out_n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        for (int32_t k = 0; k < g->nodes[i].n_in; k++) {
            const lathe_ir_node *from = decoder_of(g, g->nodes[i].in[k]);
            int32_t is_offered = 0;
            if (!from || !(weights_of(&g->nodes[i]) & 1u << k))
                continue;
            lathe_ir_node product = g->nodes[i];
            LATHE_TRY(lathe_graph_planes(g, g->values[from->in[0]].param, &product.in[k]));
            LATHE_TRY(offers(arg, g, &product, &is_offered));
            if (is_offered) {
                g->nodes[i] = product;
                ++*out_n;
            }
        }
    return lathe_pass_dead(g);
}

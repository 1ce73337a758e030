/* Joins LINEAR nodes that read one input into one node at the place of the first:
 *
 *   q = x Wq^T, k = x Wk^T, v = x Wv^T
 */
#include "graph/passes/fusion.h"

enum { MAX_PRODUCTS = 3 };

/* Whether node i is a product that may be joined. */
static int is_product(const lathe_fusion *f, int32_t i)
{
    const lathe_ir_node *n = &f->g->nodes[i];
    return n->op == LATHE_OP_LINEAR && !f->gone[i] && n->attrs.fp8 == 0 &&
           lathe__fusion_is_plain(f->g, n);
}

/* Whether a node of [from, to) writes the memory of v. */
static int is_written(const lathe_graph *g, lathe_val v, int32_t from, int32_t to)
{
    const lathe_val root = v == LATHE_NONE ? LATHE_NONE : lathe_graph_root(g, v);
    for (int32_t i = from; root != LATHE_NONE && i < to; i++)
        for (int32_t k = 0; k < g->nodes[i].n_out; k++) {
            const lathe_val out = g->nodes[i].out[k];
            if (out != LATHE_NONE && lathe_graph_root(g, out) == root)
                return 1;
        }
    return 0;
}

/* Whether an input of node `i` is written in [from, to). */
static int inputs_change(const lathe_graph *g, int32_t i, int32_t from, int32_t to)
{
    for (int32_t k = 0; k < g->nodes[i].n_in; k++)
        if (is_written(g, g->nodes[i].in[k], from, to))
            return 1;
    return 0;
}

/* Sets the weight and the bias of product `at` of a joined node. */
static void take_product(lathe_ir_node *joined, int32_t at, const lathe_ir_node *product)
{
    joined->in[1 + 2 * at] = product->in[1];
    joined->in[2 + 2 * at] = product->in[2];
}

/* Whether the product `i` can be computed at node `first`, a product of the same input. */
static int joins(const lathe_fusion *f, int32_t first, int32_t i)
{
    const lathe_ir_node *a = &f->g->nodes[first], *b = &f->g->nodes[i];
    return is_product(f, i) && a->in[0] == b->in[0] && a->phase == b->phase &&
           a->layer == b->layer && a->block == b->block && !inputs_change(f->g, i, first, i);
}

static void take_products(lathe_fusion *f, int32_t first)
{
    const lathe_graph *g = f->g;
    int32_t products[MAX_PRODUCTS] = {first}, n = 1;
    for (int32_t i = first + 1; i <= f->last_read[g->nodes[first].in[0]] && n < MAX_PRODUCTS; i++)
        if (joins(f, first, i))
            products[n++] = i;
    if (n < 2)
        return;
    lathe_ir_node fused = g->nodes[first];
    fused.op = LATHE_OP_LINEARS;
    fused.n_in = 1 + 2 * MAX_PRODUCTS;
    fused.n_out = MAX_PRODUCTS;
    for (int32_t p = 0; p < MAX_PRODUCTS; p++) {
        static const lathe_ir_node none = {.in = {LATHE_NONE, LATHE_NONE, LATHE_NONE}};
        const lathe_ir_node *product = p < n ? &g->nodes[products[p]] : &none;
        take_product(&fused, p, product);
        fused.out[p] = p < n ? product->out[0] : LATHE_NONE;
        fused.acc[p] = LATHE_NONE;
        fused.write[p] = LATHE_WRITE_SET;
    }
    if (!lathe__fusion_join(f, &fused, first, products[1]))
        return;
    for (int32_t p = 1; p < n; p++)
        f->gone[products[p]] = 1;
}

lathe_status lathe_pass_linears(lathe_graph *g, lathe_offers_fn offers, void *arg)
{
    lathe_fusion f;
    lathe__fusion_open(g, offers, arg, &f);
    for (int32_t i = 0; i < g->n_nodes && f.status == LATHE_OK; i++)
        if (is_product(&f, i))
            take_products(&f, i);
    lathe__fusion_close(&f);
    return f.status;
}

/* Marks the products that run in fp8: forward products with the blocks' own weights. Their
 * derivatives inherit the mark. */
#include "graph/passes/passes.h"
#include "lathe/fp8.h"

/* Whether the weight belongs to the model, quantized or not. Products of an adapter are small and
 * are not marked. */
static int is_of_the_model(const lathe_graph *g, lathe_val w)
{
    const int32_t param = g->values[w].param;
    return param >= 0 && g->params->rows[param]->role == LATHE_ROLE_MATRIX;
}

static int fits(const lathe_graph *g, const lathe_ir_node *n)
{
    const lathe_desc *x = &g->values[n->in[0]].desc, *w = &g->values[n->in[1]].desc;
    const int64_t rows = lathe_desc_count(x) / w->dims[1];
    return x->dtype == LATHE_BF16 && rows % LATHE_FP8_DIM == 0 && w->dims[0] % LATHE_FP8_DIM == 0 &&
           w->dims[1] % LATHE_FP8_DIM == 0;
}

void lathe_pass_fp8(lathe_graph *g, int32_t recipe)
{
    for (int32_t i = 0; i < g->n_nodes && recipe != LATHE_FP8_NONE; i++) {
        lathe_ir_node *n = &g->nodes[i];
        if (n->op == LATHE_OP_LINEAR && n->phase == LATHE_PHASE_FORWARD && n->layer >= 0 &&
            is_of_the_model(g, n->in[1]) && fits(g, n))
            n->attrs.fp8 = recipe;
    }
}

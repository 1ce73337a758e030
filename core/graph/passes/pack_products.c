/* Lets products read a quantized weight from its planes:
 *
 *   W = dequant(planes), y = x W^T      becomes      y = x planes^T
 *
 * A DEQUANT without readers is then removed. A product with planes quantizes x if the weight's
 * format asks for it; therefore such a product must have an x that is computed from the batch. */
#include "graph/passes/fusion.h"

#include <stdlib.h>

#include "base/error.h"
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

/* The row whose format quantizes activations, if node n reads it decoded as input k; else NULL. */
static const lathe_param *quantizing_row(const lathe_graph *g, const lathe_ir_node *n, int32_t k)
{
    const lathe_ir_node *from = decoder_of(g, n->in[k]);
    const lathe_param *row = from ? g->params->rows[g->values[from->in[0]].param] : NULL;
    return row && row->activations != 0 ? row : NULL;
}

/* Sets out[v], [n_values], of each value that depends on the batch or on a state. */
static void mark_computed(const lathe_graph *g, char *out)
{
    for (lathe_val v = 0; v < g->n_values; v++)
        out[v] = g->values[v].kind == LATHE_VALUE_INPUT || g->values[v].kind == LATHE_VALUE_STATE;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *n = &g->nodes[i];
        char any = 0;
        for (int32_t k = 0; k < n->n_in; k++)
            any |= n->in[k] != LATHE_NONE && out[n->in[k]];
        for (int32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != LATHE_NONE)
                out[n->out[k]] |= any;
    }
}

/* [n_values] the marks of mark_computed; NULL with LATHE_OK: no format quantizes activations. */
static lathe_status computed_values(const lathe_graph *g, char **out)
{
    int32_t i = 0;
    *out = NULL;
    while (i < g->params->n && g->params->rows[i]->activations == 0)
        i++;
    if (i == g->params->n)
        return LATHE_OK;
    *out = malloc((size_t)g->n_values + 1);
    if (!*out)
        return lathe_error(LATHE_E_NOMEM, "no memory to mark %d values", g->n_values);
    mark_computed(g, *out);
    return LATHE_OK;
}

/* Whether the product multiplies activations, or its weight's format does not quantize them. */
static int may_quantize(const lathe_graph *g, const lathe_ir_node *n, int32_t k,
                        const char *computed)
{
    return n->op != LATHE_OP_LINEAR || !quantizing_row(g, n, k) || computed[n->in[0]];
}

static lathe_status pack(lathe_graph *g, lathe_offers_fn offers, void *arg, const char *computed,
                         int32_t *out_n)
{
    for (int32_t i = 0; i < g->n_nodes; i++)
        for (int32_t k = 0; k < g->nodes[i].n_in; k++) {
            const lathe_ir_node *from = decoder_of(g, g->nodes[i].in[k]);
            int32_t is_offered = 0;
            if (!from || !(weights_of(&g->nodes[i]) & 1u << k) ||
                !may_quantize(g, &g->nodes[i], k, computed))
                continue;
            lathe_ir_node product = g->nodes[i];
            LATHE_TRY(lathe_graph_planes(g, g->values[from->in[0]].param, &product.in[k]));
            LATHE_TRY(offers(arg, g, &product, &is_offered));
            if (is_offered) {
                g->nodes[i] = product;
                ++*out_n;
            }
        }
    return LATHE_OK;
}

lathe_status lathe_pass_packed(lathe_graph *g, lathe_offers_fn offers, void *arg, int32_t *out_n)
{
    char *computed = NULL;
    *out_n = 0;
    LATHE_TRY(computed_values(g, &computed));
    const lathe_status status = pack(g, offers, arg, computed, out_n);
    free(computed);
    return status == LATHE_OK ? lathe_pass_dead(g) : status;
}

/* ---- the check ---- */

static lathe_status refuse(const lathe_ir_node *n, const lathe_param *row)
{
    return lathe_error_at(LATHE_E_CONFIG, "quant", "activations",
                          "quant.activations would not hold for %s, which %s '%s' reads as a "
                          "decoded weight: leave that layer out with quant.exclude_modules, or set "
                          "quant.activations = \"none\"",
                          row->name, lathe_op_info_get(n->op)->name, n->label);
}

/* Refuses a node that multiplies a computed value with a decoded weight, derivatives apart. */
static lathe_status check_decoded(const lathe_graph *g, const lathe_ir_node *n,
                                  const char *computed)
{
    if (n->op == LATHE_OP_LINEAR_DX || n->phase == LATHE_PHASE_BACKWARD)
        return LATHE_OK;
    for (int32_t k = 0; k < n->n_in; k++) {
        const lathe_param *row = quantizing_row(g, n, k);
        for (int32_t j = 0; row && j < n->n_in; j++)
            if (n->in[j] != LATHE_NONE && computed[n->in[j]])
                return refuse(n, row);
    }
    return LATHE_OK;
}

/* Whether a product outside the backward reads the row from its planes. */
static int is_multiplied(const lathe_graph *g, int32_t param)
{
    for (int32_t i = 0; i < g->n_nodes; i++)
        for (int32_t k = 0; k < g->nodes[i].n_in; k++) {
            const lathe_val v = g->nodes[i].in[k];
            if (g->nodes[i].op == LATHE_OP_LINEAR && v != LATHE_NONE &&
                g->values[v].kind == LATHE_VALUE_PLANES && g->values[v].param == param)
                return 1;
        }
    return 0;
}

/* Refuses a weight that is decoded and never multiplied from its planes: an adapter changes it
 * before the product. */
static lathe_status check_used(const lathe_graph *g, const lathe_ir_node *n)
{
    for (int32_t k = 0; k < n->n_in; k++) {
        const lathe_param *row = quantizing_row(g, n, k);
        if (row && !is_multiplied(g, g->values[decoder_of(g, n->in[k])->in[0]].param))
            return refuse(n, row);
    }
    return LATHE_OK;
}

lathe_status lathe_pass_check_activations(const lathe_graph *g)
{
    char *computed = NULL;
    LATHE_TRY(computed_values(g, &computed));
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; computed && i < g->n_nodes && status == LATHE_OK; i++) {
        status = check_decoded(g, &g->nodes[i], computed);
        if (status == LATHE_OK)
            status = check_used(g, &g->nodes[i]);
    }
    free(computed);
    return status;
}

/* Common code of passes that fuse two nodes into one. */
#include "graph/passes/fusion.h"

#include <stdlib.h>

#include "base/error.h"

static void count_read(lathe_fusion *f, int32_t node, lathe_val v)
{
    if (v == LATHE_NONE)
        return;
    f->reads[v]++;
    f->last_read[v] = node;
}

static void find_reads(lathe_fusion *f)
{
    const lathe_graph *g = f->g;
    for (lathe_val v = 0; v < g->n_values; v++)
        f->last_read[v] = -1;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const lathe_ir_node *n = &g->nodes[i];
        for (int32_t k = 0; k < n->n_in; k++)
            count_read(f, i, n->in[k]);
        for (int32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != LATHE_NONE && g->values[n->out[k]].kind == LATHE_VALUE_TEMP)
                count_read(f, i, g->values[n->out[k]].share);
    }
}

int32_t lathe__fusion_is_plain(const lathe_graph *g, const lathe_ir_node *n)
{
    const lathe_ir_value *v = &g->values[n->out[0]];
    return v->kind == LATHE_VALUE_TEMP && v->share == LATHE_NONE && n->acc[0] == LATHE_NONE &&
           n->write[0] == LATHE_WRITE_SET;
}

int32_t lathe__fusion_join(lathe_fusion *f, const lathe_ir_node *fused, int32_t at, int32_t other)
{
    int32_t is_offered = 0;
    if (f->status == LATHE_OK)
        f->status = f->offers(f->arg, f->g, fused, &is_offered);
    if (f->status != LATHE_OK || !is_offered)
        return 0;
    f->g->nodes[at] = *fused;
    f->gone[other] = 1;
    return 1;
}

static void drop_gone(const lathe_fusion *f)
{
    lathe_graph *g = f->g;
    int32_t kept = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        if (f->gone[i])
            continue;
        const lathe_ir_node *n = &g->nodes[i];
        for (int32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != LATHE_NONE && g->values[n->out[k]].kind == LATHE_VALUE_TEMP)
                g->values[n->out[k]].node = kept;
        g->nodes[kept++] = *n;
    }
    g->n_nodes = kept;
}

void lathe__fusion_open(lathe_graph *g, lathe_offers_fn offers, void *arg, lathe_fusion *out)
{
    *out = (lathe_fusion){.g = g, .offers = offers, .arg = arg, .status = LATHE_OK};
    out->reads = calloc((size_t)g->n_values + 1, sizeof *out->reads);
    out->last_read = malloc(((size_t)g->n_values + 1) * sizeof *out->last_read);
    out->gone = calloc((size_t)g->n_nodes + 1, 1);
    if (!out->reads || !out->last_read || !out->gone)
        out->status = lathe_error(LATHE_E_NOMEM, "no memory to join nodes");
    else
        find_reads(out);
}

void lathe__fusion_close(lathe_fusion *f)
{
    if (f->gone)
        drop_gone(f);
    free(f->reads);
    free(f->last_read);
    free(f->gone);
}

/* Asks a device for kernels, and remembers its answers. */
#include "exec/program/offers.h"

#include <string.h>

#include "base/error.h"
#include "exec/program/node_kernel.h"

static void ask_of(const lathe_graph *g, const lathe_ir_node *n, lathe_offer *out)
{
    memset(out, 0, sizeof *out);
    out->op = n->op;
    for (int32_t k = 0; k < n->n_in; k++) {
        if (n->in[k] == LATHE_NONE)
            continue;
        const lathe_ir_value *v = &g->values[n->in[k]];
        out->tensors[k] = v->desc;
        out->formats[k] = v->kind == LATHE_VALUE_PLANES ? g->params->rows[v->param]->format : NULL;
    }
    for (int32_t k = 0; k < n->n_out; k++)
        if (n->out[k] != LATHE_NONE)
            out->tensors[LATHE_OP_MAX_IN + k] = g->values[n->out[k]].desc;
}

lathe_status lathe_machine_offers(void *arg, const lathe_graph *g, const lathe_ir_node *n,
                                  int32_t *out_is_offered)
{
    lathe_offers *const all = arg;
    const lathe_machine *m = all->machine;
    lathe_kernel *kernel = NULL;
    int64_t scratch = 0;
    lathe_offer asked;
    ask_of(g, n, &asked);
    for (int32_t i = 0; i < LATHE_LAST_OFFERS && i < all->n; i++) {
        const lathe_offer *o = &all->last[i];
        *out_is_offered = o->is_made;
        if (o->op == n->op && memcmp(o->tensors, asked.tensors, sizeof o->tensors) == 0 &&
            memcmp(o->formats, asked.formats, sizeof o->formats) == 0)
            return LATHE_OK;
    }
    const lathe_status status = lathe_node_kernel(m, g, n, &kernel, &scratch);
    asked.is_made = status == LATHE_OK;
    if (status == LATHE_E_NOMEM)
        return status; /* says nothing about the op: with memory, another program would result */
    if (status == LATHE_OK)
        m->dev->kernel_destroy(m->device->self, kernel);
    else
        lathe_error_clear(); /* no kernel is not an error */
    *out_is_offered = asked.is_made;
    all->last[all->n++ % LATHE_LAST_OFFERS] = asked;
    return LATHE_OK;
}

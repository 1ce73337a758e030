/* Prepares the kernel of a node. */
#include "exec/program/node_kernel.h"

#include "lathe/quant.h"
#include "plug/answers.h"

uint32_t lathe__write_mask(const lathe_ir_node *n, int32_t write)
{
    uint32_t mask = 0;
    for (int32_t k = 0; k < n->n_out; k++)
        if (n->out[k] != LATHE_NONE && n->write[k] == write)
            mask |= 1u << k;
    return mask;
}

lathe_status lathe_node_kernel(const lathe_machine *m, const lathe_graph *g, const lathe_ir_node *n,
                               lathe_kernel **out, int64_t *out_scratch_bytes)
{
    lathe_desc in[LATHE_OP_MAX_IN], out_of[LATHE_OP_MAX_OUT];
    lathe_packed_weight weights[LATHE_OP_MAX_IN] = {{NULL, NULL}};
    const lathe_desc absent = {LATHE_ABSENT, 0, {1, 1, 1, 1}};
    for (int32_t k = 0; k < n->n_in; k++) {
        in[k] = absent;
        if (n->in[k] == LATHE_NONE)
            continue;
        const lathe_ir_value *v = &g->values[n->in[k]];
        in[k] = v->desc;
        if (v->kind == LATHE_VALUE_PLANES) {
            const lathe_instance *format = g->params->rows[v->param]->format;
            weights[k] = (lathe_packed_weight){format->table, format->self};
        }
    }
    for (int32_t k = 0; k < n->n_out; k++)
        out_of[k] = n->out[k] == LATHE_NONE ? absent : g->values[n->out[k]].desc;
    const uint32_t set = lathe__write_mask(n, LATHE_WRITE_SET),
                   add = lathe__write_mask(n, LATHE_WRITE_ADD);
    const uint32_t both = lathe__write_mask(n, LATHE_WRITE_RUNTIME);
    const lathe_kernel_problem problem = {.size = (uint32_t)sizeof problem,
                                          .op = n->op,
                                          .attrs = &n->attrs,
                                          .in = in,
                                          .out = out_of,
                                          .n_in = n->n_in,
                                          .n_out = n->n_out,
                                          .may_accumulate = add | both,
                                          .may_overwrite = set | both,
                                          .flags = m->flags,
                                          .n_threads = m->n_threads,
                                          .weights = weights};
    return lathe_answer_kernel(m->device, &problem, out, out_scratch_bytes);
}

/* Counts floating-point operations of nodes and graphs. */
#include "graph/ir/flops.h"

#include "graph/ir/op_info.h"

double lathe_attention_pairs(int64_t t, int64_t window, int32_t causal)
{
    if (!causal)
        return (double)t * (double)t;
    const double w = (double)(window > 0 && window < t ? window : t);
    return w * (w + 1.0) / 2.0 + ((double)t - w) * w;
}

static double node_flops(const lathe_graph *g, const lathe_ir_node *n)
{
    const lathe_op_info *info = lathe_op_info_get(n->op);
    lathe_op_problem problem;
    if (info->flops == NULL)
        return 0.0;
    lathe__graph_problem(g, n, &problem);
    return info->flops(&problem);
}

double lathe_node_flops(const lathe_graph *g, int32_t node)
{
    return node_flops(g, &g->nodes[node]);
}

double lathe_graph_fp8_flops(const lathe_graph *g)
{
    double total = 0.0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].attrs.fp8 != 0)
            total += node_flops(g, &g->nodes[i]);
    return total;
}

double lathe_graph_flops(const lathe_graph *g, int32_t with_recompute)
{
    double total = 0.0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        if (with_recompute || g->nodes[i].phase != LATHE_PHASE_RECOMPUTE)
            total += node_flops(g, &g->nodes[i]);
    return total;
}

/* Prepares a small graph: derivative, passes and memory plan. */
#include "check/harness/tiny_graph.h"

#include "check/harness/device_side.h"
#include "graph/ir/dump.h"
#include "graph/passes/passes.h"
#include "graph/passes/plan.h"

lathe_status lathe__sum(lathe_graph *g, lathe_val v, lathe_val *out)
{
    const lathe_op_attrs to_f32 = {.dtype = LATHE_F32};
    if (g->values[v].desc.dtype != LATHE_F32)
        LATHE_TRY(lathe_graph_node(g, LATHE_OP_CAST, &to_f32, &v, 1, &v, 1, -1, "cast"));
    return lathe_graph_node(g, LATHE_OP_SUM, NULL, &v, 1, out, 1, -1, "sum");
}

lathe_status lathe__train_graph(const lathe__subject *s, lathe_graph *g, lathe_val loss,
                                lathe_buffer *text)
{
    const lathe_desc scalar = {LATHE_F32, 0, {1, 1, 1, 1}};
    lathe_plan *plan = NULL;
    lathe_val seed;
    lathe_graph_output(g, loss);
    LATHE_TRY(lathe_graph_input(g, "seed", scalar, &seed));
    LATHE_TRY(lathe_derive(g, loss, seed));
    LATHE_TRY(lathe_pass_merge_head(g));
    LATHE_TRY(lathe_pass_dead(g));
    LATHE_TRY(lathe_pass_inplace(g));
    LATHE_TRY(lathe_plan_create(g, NULL, &plan));
    lathe_plan_destroy(plan);
    LATHE_TRY(lathe__has_kernels(s, g));
    lathe_graph_dump(g, text);
    return text->status;
}

/* The memory plan: an offset for every planned value and scratch, from their lifetimes.
 *
 *   node:      0   1   2   3   4
 *   value a    [=======]
 *   value b        [===========]
 *   scratch            [=]            two intervals that overlap in time never overlap in memory
 */
#ifndef LATHE_GRAPH_PLAN_H
#define LATHE_GRAPH_PLAN_H

#include "graph/ir/ir_graph.h"

#define LATHE_PLAN_ALIGN 64

typedef struct lathe_plan {
    /* [n_values] in the device's or host's arena; -1: not planned (persistent, input, const) */
    int64_t *offset;
    int64_t *scratch_offset;  /* [n_nodes] */
    int64_t arena_bytes;      /* peak of activations and scratch together */
    int64_t activation_bytes; /* peak without scratch */
    int64_t input_bytes;      /* inputs and constants */
    int64_t host_bytes;       /* peak of the values in host memory, which has its own arena */
    int32_t n_values, n_nodes;
} lathe_plan;

/** Plans a graph. scratch_bytes [n_nodes]: size that each node's kernel needs. */
lathe_status lathe_plan_create(const lathe_graph *g, const int64_t *scratch_bytes,
                               lathe_plan **out);
void lathe_plan_destroy(lathe_plan *plan);

#endif

/* Counts floating-point operations of nodes and graphs. */
#ifndef LATHE_GRAPH_FLOPS_H
#define LATHE_GRAPH_FLOPS_H

#include "graph/ir/ir_graph.h"

/** Number of pairs of a query and a key that attention computes in a sequence of t tokens: t*t, or,
 *  if causal, the sum over i of min(i+1, window). window 0: all keys. Ignores boundaries between
 *  packed documents, and the last keys of prefixes (a prefix objective counts t*t). */
double lathe_attention_pairs(int64_t t, int64_t window, int32_t causal);

/** Floating-point operations of one run of the graph: products and attention
 *  (lathe_attention_pairs), 2 per multiply-add. with_recompute 0: without the operations that
 *  gradient checkpointing repeats; for a fully trained model this is lathe_model_flops_per_token
 *  times the tokens. */
double lathe_graph_flops(const lathe_graph *g, int32_t with_recompute);
/** Floating-point operations in fp8 of one run of the graph, including recomputation. */
double lathe_graph_fp8_flops(const lathe_graph *g);
/** Floating-point operations of one node. */
double lathe_node_flops(const lathe_graph *g, int32_t node);

#endif

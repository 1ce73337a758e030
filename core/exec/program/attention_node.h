/* Runs attention nodes: converts a node of the graph to the problem and arguments of an
 * attention backend. */
#ifndef LATHE_EXEC_ATTENTION_NODE_H
#define LATHE_EXEC_ATTENTION_NODE_H

#include "exec/store/machine.h"
#include "graph/ir/ir_graph.h"

/** Fills the problem of an ATTENTION or ATTENTION_BWD node. */
void lathe__attention_problem(const lathe_graph *g, const lathe_ir_node *n, const lathe_machine *m,
                              lathe_attention_problem *out);

/** Runs the node on its backend. add: bit mask of the outputs that are added to. */
lathe_status lathe__attention_run(const lathe_ir_node *n, const lathe_instance *backend,
                                  const lathe_attention_problem *problem, const void *const *in,
                                  void *const *out, void *scratch, uint32_t add,
                                  lathe_stream *stream);

#endif

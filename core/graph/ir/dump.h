/* Writes a graph for people: one line per node, or for Graphviz. */
#ifndef LATHE_GRAPH_DUMP_H
#define LATHE_GRAPH_DUMP_H

#include "base/buffer.h"
#include "graph/ir/ir_graph.h"

void lathe_graph_dump(const lathe_graph *g, lathe_buffer *out);
void lathe_graph_dot(const lathe_graph *g, lathe_buffer *out);

#endif

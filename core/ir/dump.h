/* The graph for people: one line per node, or Graphviz. */
#ifndef LATHE_IR_DUMP_H
#define LATHE_IR_DUMP_H

#include "base/buffer.h"
#include "ir/graph.h"

void lathe_graph_dump(const lathe_graph *g, lathe_buffer *out);
void lathe_graph_dot(const lathe_graph *g, lathe_buffer *out);

/** "bf16[4096,768]" into text. */
const char *lathe_desc_text(const lathe_desc *d, char *text, int64_t capacity);

#endif

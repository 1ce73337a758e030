/* Prepares the graphs of checks of adapters and stages, from the loss to
 * the plan, as a run does. */
#ifndef LATHE_CHECK_TINY_GRAPH_H
#define LATHE_CHECK_TINY_GRAPH_H

#include "base/buffer.h"
#include "check/harness/subject.h"
#include "graph/ir/ir_graph.h"

/** The sum of v as f32[]; casts v to f32 first if needed. */
lathe_status lathe__sum(lathe_graph *g, lathe_val v, lathe_val *out);

/** Makes derivative, passes and memory plan of a loss, and its kernels if the subject has a device;
 *  writes the graph's dump to text. */
lathe_status lathe__train_graph(const lathe__subject *s, lathe_graph *g, lathe_val loss,
                                lathe_buffer *text);

#endif

/* A graph for checks of adapters and stages: from a loss to a plan, as a run would. */
#ifndef LATHE_HARNESS_TINY_GRAPH_H
#define LATHE_HARNESS_TINY_GRAPH_H

#include "base/buffer.h"
#include "harness/subject.h"
#include "ir/graph.h"

/** f32[] sum of v, cast to f32 first where needed. */
lathe_status lathe__sum(lathe_graph *g, lathe_val v, lathe_val *out);

/** Derivative, passes and memory plan of a loss, and its kernels where the subject has a device;
 *  the graph's dump goes to text. */
lathe_status lathe__train_graph(const lathe__subject *s, lathe_graph *g, lathe_val loss,
                                lathe_buffer *text);

#endif

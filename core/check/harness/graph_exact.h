/* Evaluates a graph node by node in double precision: the results that a plugin's graph should have
 * on any device.
 *
 *     lathe__exact e;
 *     LATHE_TRY(lathe__exact_init(&e, s, g));   after the last node is added
 *     fill lathe__exact_data(&e, v) of inputs and parameters
 *     LATHE_TRY(lathe__exact_run(&e));          again for other inputs, as often as needed */
#ifndef LATHE_CHECK_GRAPH_EXACT_H
#define LATHE_CHECK_GRAPH_EXACT_H

#include "check/harness/subject.h"
#include "graph/ir/ir_graph.h"

typedef struct lathe__exact {
    const lathe_graph *g;
    double **data; /* [n_values]; in-place results have separate memory */
} lathe__exact;

lathe_status lathe__exact_init(lathe__exact *e, lathe__subject *s, const lathe_graph *g);
double *lathe__exact_data(const lathe__exact *e, lathe_val v);
int64_t lathe__exact_count(const lathe__exact *e, lathe_val v);

/** Runs all nodes; takes the values of constants from the graph. LATHE_E_UNSUPPORTED: a node that
 *  only a codec can run. */
lathe_status lathe__exact_run(const lathe__exact *e);

/** The value whose data the memory of v contains after all nodes have run. */
lathe_val lathe__exact_last(const lathe__exact *e, lathe_val v);

/** Fills a parameter or an input with noise in [-scale, scale) by seed. */
void lathe__exact_noise(const lathe__exact *e, lathe_val v, uint64_t seed, double scale);
/** Fills a parameter as its declaration says: zeros, ones, or noise of its scale. */
void lathe__exact_initial(const lathe__exact *e, lathe_val v, uint64_t seed);

#endif

/* A graph evaluated node by node in double precision: what a plugin's graph computes, whatever
 * device runs it later.
 *
 *     lathe__exact e;
 *     LATHE_TRY(lathe__exact_init(&e, s, g));   after the last node
 *     fill lathe__exact_data(&e, v) of inputs and parameters
 *     LATHE_TRY(lathe__exact_run(&e));          again after other inputs, as often as wanted
 */
#ifndef LATHE_HARNESS_GRAPH_EXACT_H
#define LATHE_HARNESS_GRAPH_EXACT_H

#include "harness/subject.h"
#include "ir/graph.h"

typedef struct lathe__exact {
    const lathe_graph *g;
    double **data; /* [n_values]; in-place results have memory of their own */
} lathe__exact;

lathe_status lathe__exact_init(lathe__exact *e, lathe__subject *s, const lathe_graph *g);
double *lathe__exact_data(const lathe__exact *e, lathe_val v);
int64_t lathe__exact_count(const lathe__exact *e, lathe_val v);

/** Values of constants are taken from the graph. LATHE_E_UNSUPPORTED: a node that only a codec can
 *  run. */
lathe_status lathe__exact_run(const lathe__exact *e);

/** The value that stands in the memory of v when all nodes have run. */
lathe_val lathe__exact_last(const lathe__exact *e, lathe_val v);

/** Fills a parameter's or an input's values: noise in [-scale, scale) by seed. */
void lathe__exact_noise(const lathe__exact *e, lathe_val v, uint64_t seed, double scale);
/** As the parameter's declaration says: zeros, ones, or noise of its scale. */
void lathe__exact_initial(const lathe__exact *e, lathe_val v, uint64_t seed);

#endif

/* When a graph uses the gradients of parameters. */
#ifndef LATHE_EXEC_GRAD_LIVES_H
#define LATHE_EXEC_GRAD_LIVES_H

#include "exec/store/store.h"
#include "graph/ir/ir_graph.h"

/** Nodes [first, last] of a graph that use a gradient, as input or output; last -1: none does. */
typedef struct lathe_grad_life {
    int32_t first, last;
} lathe_grad_life;

/** Finds the lives of the gradients of all parameters in a finished graph. out: [n_rows], by the
 *  number in the table of parameters. */
void lathe_grad_lives(const lathe_graph *g, int32_t n_rows, lathe_grad_life *out);

/** The last of the nodes that use gradients in bytes [begin, end) of the store's gradients; -1:
 *  none does.
 *
 *  lives  [store->n_rows] of lathe_grad_lives */
int32_t lathe_grads_last_use(const lathe_store *store, const lathe_grad_life *lives, int64_t begin,
                             int64_t end);

#endif

/* When a program reads divided values of parameters (exec/store/gathered.h), and where they then
 * are.
 *
 * A use of a gather is a range of nodes. It ends when weights of another layer are read before the
 * next read, and at the end of the forward; then the memory is free for other gathers. A gather
 * starts when the one before it is first read, and is waited for before the node that reads it:
 *
 *   nodes      | layer 0      | layer 1      | layer 2      |
 *   gather a   |ssssssssuuuuuu|                                   s: under way, u: used
 *   gather b                |sssssssssssuuuuu|
 *   gather c                               |ssssssssssuuuuuu|     in the memory of a
 *
 * Every gather has one place in the window for the whole program, so that addresses stay fixed.
 */
#ifndef LATHE_EXEC_GATHER_USES_H
#define LATHE_EXEC_GATHER_USES_H

#include "exec/store/store.h"
#include "graph/ir/ir_graph.h"

/* Events before a node, in this order: waiting for gathers that were started; gathers with no time
 * to run beside other work; starts of later ones. */
enum { LATHE_GATHER_WAIT = 0, LATHE_GATHER_AT_ONCE = 1, LATHE_GATHER_START = 2 };

typedef struct lathe_gather_event {
    int32_t node, gather;
    int32_t what; /* LATHE_GATHER_* */
} lathe_gather_event;

typedef struct lathe_gather_uses {
    int64_t *at; /* [store->gathers->n] byte in the window; -1: the program does not read it */
    lathe_gather_event *events;  /* by node, then by `what` */
    int32_t n_events, n_started; /* n_started: gathers that are under way */
    int64_t bytes;               /* of the window */
    char *window;
} lathe_gather_uses;

/** Finds the uses in a finished graph, whose forward has `border` nodes, and places the gathers.
 *  Zeros for a store that is not divided. */
lathe_status lathe_gather_uses_init(lathe_gather_uses *u, const lathe_store *store,
                                    const lathe_graph *g, int32_t border);
void lathe_gather_uses_fini(lathe_gather_uses *u);

/** Address of the whole values of a row (plane -1), or of a plane; NULL: they are in no gather of
 *  this program. */
void *lathe_gather_uses_address(const lathe_gather_uses *u, const lathe_store *store, int32_t param,
                                int32_t plane);

/** Makes the events that come before a node: starts gathers, and waits for those that it reads.
 * *io_next: the first event that is not done; begin a range with lathe_gather_uses_first. */
int32_t lathe_gather_uses_first(const lathe_gather_uses *u, int32_t node);
lathe_status lathe_gather_uses_before(lathe_gather_uses *u, const lathe_store *store, int32_t node,
                                      int32_t *io_next);

#endif

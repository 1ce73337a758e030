/* The order in which a backward completes buckets of gradients. */
#ifndef LATHE_PARALLEL_BUCKET_ORDER_H
#define LATHE_PARALLEL_BUCKET_ORDER_H

#include "exec/program/exec.h"

/** The buckets of a graph, sorted by the last node that uses one of their gradients; those of one
 *  node by their number. Ranks that run the same graph have the same order. */
typedef struct lathe_bucket_order {
    const lathe_graph *graph; /* borrowed */
    int32_t *order;           /* [n] numbers of buckets */
    int32_t *last;            /* [n] the last node of order[k]; -1: no node uses its gradients */
} lathe_bucket_order;

/** The orders of several graphs. */
typedef struct lathe_bucket_orders {
    lathe_bucket_order *list;
    int32_t n, capacity;
} lathe_bucket_orders;

/** Makes room for the orders of n graphs. The caller calls lathe_bucket_orders_fini, also after an
 *  error. */
lathe_status lathe_bucket_orders_init(lathe_bucket_orders *o, int32_t n);
/** Frees them. *o may be all zeros. */
void lathe_bucket_orders_fini(lathe_bucket_orders *o);

/** Adds the order of one graph; the room was made before.
 *
 *  last  [n_buckets] the last node that uses a gradient of each bucket; -1: none does */
lathe_status lathe_bucket_orders_add(lathe_bucket_orders *o, const lathe_graph *g,
                                     const int32_t *last, int32_t n_buckets);

/** Finds the order of a graph. LATHE_E_STATE: it was not added. */
lathe_status lathe_bucket_orders_find(const lathe_bucket_orders *o, const lathe_graph *g,
                                      const lathe_bucket_order **out);

#endif

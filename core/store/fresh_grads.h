/* Gradients of one micro-batch whose sums ranks divide (parallel.shard = "gradients").
 *
 * The backward writes the gradients of a bucket into memory that it shares with other buckets. When
 * they are complete, ranks add them, and each keeps the sums of its extent; then the memory is free
 * for a later bucket. A bucket lives from the first to the last node that writes one of its
 * gradients:
 *
 *   nodes of the backward   --------------------------------------->
 *   bucket 0                |=====|
 *   bucket 1                   |======|
 *   bucket 2                          |=====|      in the memory of bucket 0
 */
#ifndef LATHE_STORE_FRESH_GRADS_H
#define LATHE_STORE_FRESH_GRADS_H

#include "ir/graph.h"
#include "store/store.h"

/** Nodes [first, last] in which a bucket lives. A bucket of which a gradient is written by no node
 *  lives always: that gradient stays zero. */
typedef struct lathe_bucket_life {
    int32_t first, last;
} lathe_bucket_life;

/** Places the fresh gradients of a store that is laid out: two buckets share memory if they do not
 *  live together in any of the graphs. Sets store->fresh_bytes.
 *
 *  lags   1: ranks add a bucket while the backward goes on, so that it keeps its memory until the
 *         bucket after it is complete (by last node, then by number)
 *  lives  [n_graphs, n_buckets] out; without the lag */
lathe_status lathe_fresh_grads_plan(lathe_store *store, const lathe_graph *const *graphs,
                                    int32_t n_graphs, int32_t lags, lathe_bucket_life *lives);

#endif

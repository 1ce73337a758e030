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

#include "store/grad_lives.h"

/** Places the fresh gradients of a store that is laid out: two buckets share memory if they do not
 *  live together in any of the graphs. Sets store->fresh_bytes.
 *
 *  lags   1: ranks add a bucket while the backward goes on, so that it keeps its memory until the
 *         bucket after it is complete (by last node, then by number)
 *  lives  [n_graphs, n_buckets] out; without the lag. A bucket of which a gradient is used by no
 *         node lives always: that gradient stays zero. */
lathe_status lathe_fresh_grads_plan(lathe_store *store, const lathe_graph *const *graphs,
                                    int32_t n_graphs, int32_t lags, lathe_grad_life *lives);

#endif

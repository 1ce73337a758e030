/* Gradients of one micro-batch when each rank keeps only its share of the sums (parallel.shard =
 * "gradients").
 *
 * The backward writes the gradients of a bucket into memory that it shares with other buckets. When
 * they are complete, ranks add them, and each keeps the sums of its extent; then the memory is free
 * for a later bucket. A bucket lives from the first to the last node that reads or writes one of
 * its gradients:
 *
 *   nodes of the backward   --------------------------------------->
 *   bucket 0                |=====|
 *   bucket 1                   |======|
 *   bucket 2                          |=====|      in the memory of bucket 0
 */
#ifndef LATHE_EXEC_FRESH_GRADS_H
#define LATHE_EXEC_FRESH_GRADS_H

#include "exec/store/grad_lives.h"

/** Places the gradients of the current micro-batch of a store that is laid out: two buckets share
 *  memory if they do not live at the same time in any of the graphs. Sets store->fresh_bytes.
 *
 *  lags   1: reductions overlap the backward. A bucket then keeps its memory until the next bucket,
 *         in order of last node and then of number, is complete
 *  lives  [n_graphs, n_buckets] out; without the lag. A bucket with a gradient that no node uses is
 *         live in the whole graph: its memory is not shared, so that gradient stays zero. */
lathe_status lathe_fresh_grads_plan(lathe_store *store, const lathe_graph *const *graphs,
                                    int32_t n_graphs, int32_t lags, lathe_grad_life *lives);

#endif

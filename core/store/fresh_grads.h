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

/** Nodes [first, last] in which a bucket lives. */
typedef struct lathe_bucket_life {
    int32_t first, last;
} lathe_bucket_life;

/** Lives of the buckets of a store in a finished graph. A bucket of which a gradient is written by
 *  no node lives always: that gradient stays zero. out: [division->n_buckets] */
lathe_status lathe_bucket_lives(const lathe_store *store, const lathe_graph *g,
                                lathe_bucket_life *out);

/** Places the fresh gradients of a store that is laid out: two buckets share memory if they do not
 *  live together in any of the graphs. lives: [n_graphs, n_buckets]. Sets store->fresh_bytes. */
lathe_status lathe_fresh_grads_place(lathe_store *store, const lathe_bucket_life *lives,
                                     int32_t n_graphs);

#endif

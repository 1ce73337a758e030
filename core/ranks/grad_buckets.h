/* Sums of the gradients over all ranks, bucket by bucket.
 *
 * The gradients of a store lie one after the other, the f32 ones first (store/store.h). A bucket is
 * a range of elements of one dtype, and its sum replaces it: no gradient is copied.
 */
#ifndef LATHE_RANKS_GRAD_BUCKETS_H
#define LATHE_RANKS_GRAD_BUCKETS_H

#include "ranks/ranks.h"
#include "store/store.h"

typedef struct lathe_grad_buckets lathe_grad_buckets;

/** Prepares the exchanges for a store that is laid out. bucket_bytes: about how large a bucket is,
 *  at least 1. ranks must outlive *out. */
lathe_status lathe_grad_buckets_create(lathe_ranks *ranks, const lathe_store *store,
                                       int64_t bucket_bytes, lathe_grad_buckets **out);
/** Frees buckets whose room was freed; NULL is fine. */
void lathe_grad_buckets_destroy(lathe_grad_buckets *b);

/** Memory that the exchanges need; NULL for NULL. */
lathe_exchange_room *lathe_grad_buckets_room(lathe_grad_buckets *b);
/** Bytes that this rank has sent in lathe_grad_buckets_reduce since the last call, as the engine
 *  counted them; 0 for NULL. */
int64_t lathe_grad_buckets_take_sent(lathe_grad_buckets *b);
int32_t lathe_grad_buckets_count(const lathe_grad_buckets *b);

/** Adds the gradients of all ranks, in place; the room is allocated. */
lathe_status lathe_grad_buckets_reduce(lathe_grad_buckets *b, const lathe_store *store);

#endif

/* Sums of the gradients over all ranks, bucket by bucket.
 *
 * The gradients of a store lie one after the other, the f32 ones first (exec/store/store.h). A
 * bucket is a range of elements of one dtype, and its sum replaces it: no gradient is copied. They
 * are added during the last backward of a step, or after it (bucket_sums.h).
 */
#ifndef LATHE_PARALLEL_GRAD_BUCKETS_H
#define LATHE_PARALLEL_GRAD_BUCKETS_H

#include "parallel/ranks/bucket_sums.h"

typedef struct lathe_grad_buckets lathe_grad_buckets;

/** Prepares the exchanges for a store that is laid out. bucket_bytes: about how large a bucket is,
 *  at least 1. ranks, m and store must outlive *out. */
lathe_status lathe_grad_buckets_create(lathe_ranks *ranks, lathe_machine *m,
                                       const lathe_store *store, int64_t bucket_bytes,
                                       lathe_grad_buckets **out);
/** Frees buckets whose room was freed; NULL is fine. */
void lathe_grad_buckets_destroy(lathe_grad_buckets *b);

/** Memory that the exchanges need; NULL for NULL. */
lathe_exchange_room *lathe_grad_buckets_room(lathe_grad_buckets *b);
/** Finds when the backward of each of n programs completes the buckets. The programs outlive it. */
lathe_status lathe_grad_buckets_plan(lathe_grad_buckets *b, const lathe_graph *const *graphs,
                                     int32_t n);
/** Bytes that this rank has sent in reduce and backward since the last call, as the engine counted
 *  them; 0 for NULL. */
int64_t lathe_grad_buckets_take_sent(lathe_grad_buckets *b);

/** Adds the gradients of all ranks, in place; the room is allocated. */
lathe_status lathe_grad_buckets_reduce(lathe_grad_buckets *b);
/** Runs a backward, and adds the gradients of all ranks meanwhile (lathe_bucket_sums_backward). */
lathe_status lathe_grad_buckets_backward(lathe_grad_buckets *b, lathe_exec *exec, int32_t begin,
                                         int32_t accumulate);
/** Seconds since the last call that backwards waited after their last node. */
double lathe_grad_buckets_take_wait(lathe_grad_buckets *b);

#endif

/* Bytes that ranks send to each other in a step, computed from the plan without the other ranks. */
#ifndef LATHE_PARALLEL_STEP_BYTES_H
#define LATHE_PARALLEL_STEP_BYTES_H

#include "exec/store/store.h"

/** Bytes and exchanges of one rank in one step. */
typedef struct lathe_step_bytes {
    int64_t reduced;  /* bytes that it sends so that gradients are added */
    int64_t spread;   /* bytes that it sends so that all have the new weights, or gather them */
    int32_t n_reduce; /* exchanges of gradients, */
    int32_t n_spread; /* and of weights */
} lathe_step_bytes;

/** Computes what rank ask->rank of ask->n_ranks sends with an engine that sends the least: one that
 *  sends each extent once to the rank that adds it, and each result once to every other rank.
 *
 *  store    of a training, laid out for one rank
 *  n_micro  micro-batches of a step
 *
 *  With LATHE_SHARD_PARAMETERS trained weights are gathered twice in a micro-batch; frozen weights
 *  and weights that are used in several places of a pass (tied embeddings) are not in it.
 *
 *  With LATHE_SHARD_NONE gradients are added and spread; all of it is in `reduced`. */
lathe_status lathe_step_bytes_of(const lathe_store *store, const lathe_division_ask *ask,
                                 int32_t n_micro, lathe_step_bytes *out);

/** Bytes of LATHE_MEM_STAGING that the exchanges of rank ask->rank need with an engine that has the
 *  scratch of lathe/kit/collective_kit.h, as mpi does. store: laid out for that rank.
 *  is_staged: also the copy of the largest bucket in the host's memory, as collective/staged does.
 */
int64_t lathe_step_room_of(const lathe_store *store, const lathe_division_ask *ask,
                           int32_t is_staged);

#endif

/* Exchanges of what ranks divide (exec/store/division.h): sums of the gradients for the rank that
 * updates them, updated elements for all, and whole tensors for rank 0, which writes checkpoints.
 *
 *   step         each rank: gradients of all elements
 *     reduce     each rank: sums of its extents       reduce_scatter, bucket by bucket
 *     update     each rank: its extents
 *     spread     each rank: all elements              all_gather, bucket by bucket
 *
 * If values are divided too, most are not spread, but gathered where programs read them
 * (exec/store/gathered.h).
 *
 * If the sums of the gradients are divided too, reduce happens during each backward, bucket by
 * bucket as their gradients are complete (exec/store/fresh_grads.h).
 *
 * If several groups of ranks each divide everything (rank_layout.h), the ranks of one group do this
 * with each other; between reduce and update, ranks of all groups with the same extents add them
 * (all_reduce): once for each step.
 *
 * While rank 0 writes a checkpoint, the other ranks serve it: they send what it asks for, until it
 * releases them. It gets one tensor at a time, in pieces; no rank holds the state of another.
 */
#ifndef LATHE_PARALLEL_EXTENTS_H
#define LATHE_PARALLEL_EXTENTS_H

#include "exec/program/exec.h"
#include "exec/store/peers.h"
#include "parallel/ranks/rank_layout.h"
#include "parallel/ranks/serving.h"

typedef struct lathe_extents lathe_extents;

/** Prepares the exchanges of a store that is divided and laid out, and sets store->peers, which
 *  lives as long as *out. layout, m and store must outlive it. */
lathe_status lathe_extents_create(const lathe_rank_layout *layout, lathe_machine *m,
                                  lathe_store *store, lathe_extents **out);
/** NULL is fine. */
void lathe_extents_destroy(lathe_extents *x);

/** Memory that the exchanges need, which is allocated before the first one; NULL for NULL. */
lathe_exchange_room *lathe_extents_room(lathe_extents *x);

/** With LATHE_SHARD_GRADIENTS: finds when the buckets are complete in the backward of each of n
 *  programs, and places the fresh gradients. The programs outlive it. */
lathe_status lathe_extents_plan(lathe_extents *x, const lathe_graph *const *graphs, int32_t n);

/** Like lathe_extents_plan, for a plan without the other ranks: places the fresh gradients. */
lathe_status lathe_extents_foresee(const lathe_machine *m, lathe_store *store,
                                   const lathe_graph *const *graphs, int32_t n);

/** Runs the backward of a planned program, its nodes from `begin` on, and adds the gradients of all
 *  ranks meanwhile. All ranks call it: with LATHE_SHARD_GRADIENTS in every micro-batch, where it
 * adds to the sums of their extents; with LATHE_SHARD_OPTIMIZER in the last one of a step, in place
 * of lathe_extents_reduce. is_first: of the step; replaces the sums. */
lathe_status lathe_extents_backward(lathe_extents *x, lathe_exec *exec, int32_t begin,
                                    int32_t is_first);

/** Adds the gradients of all ranks, in place: afterwards each rank has the sums of its extents, and
 * other elements are undefined. With LATHE_SHARD_GRADIENTS, where each backward has added those of
 * the ranks that divide, only the sums of the copies are left to add. */
lathe_status lathe_extents_reduce(lathe_extents *x);

/** Seconds since the last call that backwards of LATHE_SHARD_OPTIMIZER waited after their last
 *  node. */
double lathe_extents_take_wait(lathe_extents *x);

/** Bytes that this rank has sent in reduce and spread since the last call; 0 for NULL. */
int64_t lathe_extents_take_sent(lathe_extents *x);

/** How rank 0 asks for the extents of others, and how they serve it. */
const lathe_serving *lathe_extents_serving(const lathe_extents *x);
/** Rank 0 calls it before (1) and after (0) it runs programs alone, while the others serve it. */
void lathe_extents_lead(lathe_extents *x, int32_t is_alone);

#endif

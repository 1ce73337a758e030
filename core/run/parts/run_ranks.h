/* Divides a run among its ranks, and checks what several of them can do (docs/design/032-ranks.md).
 */
#ifndef LATHE_RUN_RUN_RANKS_H
#define LATHE_RUN_RUN_RANKS_H

#include "parallel/ranks/rank_layout.h"
#include "run/state/run_state.h"

/** How the settings lay out ranks. */
lathe_layout_ask lathe__run_layout_ask(const lathe_settings *set);

/** Lays out the ranks, and the store of a training, of which several ranks may hold a part each
 *  (parallel.shard). */
lathe_status lathe__run_lay_out(lathe_run *run);

/** Refuses what several ranks cannot do. */
lathe_status lathe__run_check_ranks(const lathe_run *run);
/** Whether that was called when the ranks met, or for the ranks of lathe validate --ranks N. */
int32_t lathe__run_ranks_are_checked(const lathe_run *run);
/** Refuses what a run with parallel.shard that is one rank or only checked cannot do, and what
 *  parallel.shard does not combine with. */
lathe_status lathe__run_check_shard(const lathe_run *run);

/** Prepares the sums of the gradients, after the store is laid out, and adds their memory to the
 *  plan; allocates it; frees it. */
lathe_status lathe__run_plan_buckets(lathe_run *run);
lathe_status lathe__run_place_buckets(lathe_run *run);
void lathe__run_close_buckets(lathe_run *run);

/** Calls work(run) on rank 0, then on the others: what it makes is in the cache by then. */
lathe_status lathe__run_first_alone(lathe_run *run, lathe_status (*work)(lathe_run *run));

#endif

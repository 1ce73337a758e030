/* The process of rank 0, as another rank of its host sees it.
 *
 * Rank 0 alone has the run's folder. Where every rank holds all of the state, another one can write
 * the checkpoint if rank 0 is lost; it has to be sure of that, because two ranks that write at the
 * same time would damage the folder. So it compares the process, and takes the very lock that rank
 * 0 held, which the kernel releases when a process ends (base/lock.h).
 */
#ifndef LATHE_PARALLEL_FIRST_RANK_H
#define LATHE_PARALLEL_FIRST_RANK_H

#include "base/lock.h"
#include "parallel/ranks/ranks.h"

/* Ways in which a rank ends when another one has, after which the launcher ends all others: it just
 * ends; it will notice, and write a checkpoint; it does so now; it will write it if rank 0 is lost;
 * it will notice, and say what is lost. */
enum {
    LATHE_SAVES_NEVER = 0,
    LATHE_SAVES_SOON = 1,
    LATHE_SAVES_NOW = 2,
    LATHE_SAVES_AS_HEIR = 3,
    LATHE_SAVES_NOTHING = 4
};

/** Tells the others the process of rank 0 and the file of its lock. All ranks call it while all of
 *  them are alive. lock: of the run's folder, on rank 0; others pass NULL. */
lathe_status lathe_first_rank_tell(lathe_ranks *ranks, const lathe_lock *lock);

/** Whether rank 0 has ended without a word: its process, which this rank saw before, is gone, and
 *  no rank has printed why the run ends. 0 on rank 0, on another host than it, and where it cannot
 *  be known. [any thread] */
int32_t lathe_first_rank_is_lost(void);

/** Whether rank 0 goes on, as this rank of its host sees; 0 where it cannot be known. */
int32_t lathe_first_rank_goes_on(void);

/** Whether the lock is on the file that rank 0 had locked. */
int32_t lathe_first_rank_had(const lathe_lock *lock);

#endif

/* How a failing run ends: one rank prints the reason, and all ranks exit.
 *
 *   rank 0            rank 1            rank 2
 *   disk full         waits             waits
 *   sends it   -->    receives it       receives it     lathe_collective_v1.tell, or files on the
 * host prints why all lines are printed: the ranks exchange messages once more exits exits exits
 * lathe_collective_v1.abort, or the launcher
 *
 * Ranks that fail for the same reason have the same text, which the lowest of them prints. A rank
 * that fails for another reason prints that, too, with its number. A rank that fails only because
 * others did (LATHE_E_RANK) prints that if no rank knows the cause, which means that the others
 * were killed or hang. (docs/design/032-ranks.md)
 */
#ifndef LATHE_PARALLEL_FAILURE_REPORT_H
#define LATHE_PARALLEL_FAILURE_REPORT_H

#include "lathe/collective.h"
#include "parallel/ranks/ranks.h"

/** Why a rank fails. Plain data: ranks send it to each other. */
typedef struct lathe_rank_failure {
    int32_t status; /* lathe_status; LATHE_OK: it does not fail */
    int32_t reserved;
    uint64_t text;       /* hash of what it would print */
    uint8_t padding[48]; /* zeros */
} lathe_rank_failure;
LATHE_ABI_SIZE(lathe_rank_failure, 64);

/** A rank's part in reporting a failure: whether it prints its reason, and the common exit status.
 */
typedef struct lathe_failure_decision {
    int32_t prints;     /* 1: it prints its text */
    int32_t names_rank; /* 1: with its number, because not all ranks say the same */
    int32_t rank, n_ranks;
    lathe_status status; /* of the lowest rank whose status is not LATHE_E_RANK, if there is one:
                          * all ranks exit with its code */
} lathe_failure_decision;

/** Decides for `rank`: a function of what all ranks have told.
 *
 *  all   [n_ranks]
 *  told  [n_ranks] 1: all[q] was received; told[rank] is 1 */
void lathe__failure_decide(const lathe_rank_failure *all, const unsigned char *told, int32_t rank,
                           int32_t n_ranks, lathe_failure_decision *out);

/** Call it when the run fails on this rank. It stays in the group, and its memory is not freed,
 * because exchanges may be under way in it. NULL: it has not joined the others. */
void lathe_ranks_abandon(lathe_ranks *ranks);
int32_t lathe_ranks_are_abandoned(void);

/** Call it when this rank fails, and rank 0 then writes a checkpoint of the whole state: how long
 * it takes is not known, so that this rank waits for it up to `seconds`, and at most as long as for
 * any rank, before it ends all. */
void lathe_ranks_expect_save(double seconds);

/** Learns from the other ranks why they fail, and decides what this one does. Takes at most 6 s,
 * after lathe_ranks_expect_save() at most the deadline of the ranks; a rank that learns nothing in
 * that time prints its reason, and so does one without others. Call it once, before anything is
 * printed.
 *
 *  text  what this rank would print */
void lathe_ranks_agree_on_failure(lathe_status status, const char *text,
                                  lathe_failure_decision *out);

/** Ends all ranks, after those that print have done so (this one before the call). The process then
 * exits with exit_code; the function may do so. Returns at once if there are no other ranks. */
void lathe_ranks_end(int32_t exit_code);

/** `lathe launch` sets this variable for its ranks: it reports killed ranks itself. */
#define LATHE_LAUNCH_VARIABLE "LATHE_LAUNCH"

/** Stops the mpirun of `lathe launch`, which ends all ranks two seconds after one of them has
 * ended, and lets it go on; lathe_ranks_end lets it go on, and so does `lathe launch` when no rank
 * is left. Does nothing under any other launcher. [any thread] */
void lathe_ranks_hold_launcher(int32_t holds);

/** Whether a rank of this host has printed why the run ends. [any thread] */
int32_t lathe_ranks_have_said_why(void);

/** Whether no message should be printed for a signal from the process `sender`: a rank of this host
 * has printed why the run fails, or mpirun ends this rank for `lathe launch`. [any thread] */
int32_t lathe_ranks_are_ending(int32_t sender);

#endif

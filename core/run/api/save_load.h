/* Resumes a run from the checkpoint that checkpoint.resume names. lathe_save and lathe_load are in
 * the C API, lathe/lathe.h. */
#ifndef LATHE_RUN_SAVE_LOAD_H
#define LATHE_RUN_SAVE_LOAD_H

#include "run/state/run_state.h"

/** Calls lathe_checkpoint_resume; then fills the weights if they were not filled before and no
 * checkpoint provided them. */
lathe_status lathe__run_resume(lathe_run *run, const char **out_path);

/** Fills the optimizer's own average for a checkpoint, if it keeps one; on rank 0 of ranks that
 *  divide the state, also that of the others. */
lathe_status lathe__run_fill_averages(lathe_run *run);

/** Where rank 0 works alone, such as at a checkpoint, the other ranks wait for it, as long as it
 *  takes: a rank that is busy does not hang, and parallel.deadline_seconds is for exchanges of a
 *  step. serves() tells whether this is another rank; it calls serve(), in which it also sends what
 *  rank 0 asks for of divided state, and rank 0 calls release() afterwards, also if it did nothing.
 */
int32_t lathe__run_serves(const lathe_run *run);
lathe_status lathe__run_serve(lathe_run *run);
lathe_status lathe__run_release(lathe_run *run);
/** All ranks wait until all are here, or all ranks of this one's island, as long as it takes. */
lathe_status lathe__run_meet(const lathe_run *run);
lathe_status lathe__run_meet_island(const lathe_run *run);

#endif

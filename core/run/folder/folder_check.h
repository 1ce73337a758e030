/* Checks that a run can use its folder, checkpoint.dir. */
#ifndef LATHE_RUN_FOLDER_CHECK_H
#define LATHE_RUN_FOLDER_CHECK_H

#include "base/lock.h"
#include "run/state/run_state.h"

/** Refuses, at checkpoint.dir, a folder in which another run trains, or in which nothing can be
 * written. Does not create a folder that does not exist yet. */
lathe_status lathe__folder_check(const lathe_run *run);

/** Locks the folder, which must exist. LATHE_E_CONFIG: another run holds the lock. */
lathe_status lathe__folder_lock(lathe_run *run, lathe_lock *out);

/** Whether a file or folder that the run file names is not on this machine, while the run is
 * checked for another one (lathe validate --offline). path: NULL is nowhere. */
int32_t lathe__is_elsewhere(const lathe_run *run, const char *path);

/** Moves the run that is in checkpoint.dir aside, for checkpoint.resume = "restart": the folder is
 *  renamed to DIR.before-1, or the next free number. Nothing if it holds no run. Refuses a folder
 *  in which a run is training. */
lathe_status lathe__folder_move_aside(lathe_run *run);

#endif

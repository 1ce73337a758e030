/* Whether a run may have its folder, checkpoint.dir. */
#ifndef LATHE_RUN_FOLDER_CHECK_H
#define LATHE_RUN_FOLDER_CHECK_H

#include "base/lock.h"
#include "run/run_state.h"

/** Refuses, at checkpoint.dir, a folder in which another run trains, and one in which nothing can
 * be written; a folder that does not exist yet stays so. */
lathe_status lathe__folder_check(const lathe_run *run);

/** Takes the lock of the folder, which exists. LATHE_E_CONFIG: another run has it. */
lathe_status lathe__folder_lock(lathe_run *run, lathe_lock *out);

#endif

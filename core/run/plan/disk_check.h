/* Checks before the first step whether the checkpoints will fit on the disk. */
#ifndef LATHE_RUN_DISK_CHECK_H
#define LATHE_RUN_DISK_CHECK_H

#include "run/state/run_state.h"

/** Warns at checkpoint.dir if the checkpoints that the run still writes, from the checkpoint that
 * it resumes from on, need more than the free bytes of its file system. Needs the plan, the length
 * of the run, and lathe__resume_check.
 * LATHE_E_CONFIG: not even one of them fits, and the run has steps left. */
lathe_status lathe__disk_check(lathe_run *run);

#endif

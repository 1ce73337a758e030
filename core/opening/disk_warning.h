/* Warns before the first step if the checkpoints will not fit on the disk. */
#ifndef LATHE_OPENING_DISK_WARNING_H
#define LATHE_OPENING_DISK_WARNING_H

#include "run/run_state.h"

/** Warns at checkpoint.dir if the checkpoints that the run still writes, from the checkpoint that
 * it resumes from on, need more than the free bytes of its file system. Needs the plan, the length
 * of the run, and lathe__resume_check. */
lathe_status lathe__disk_warn(lathe_run *run);

#endif

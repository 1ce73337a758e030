/* Whether the checkpoint that a training would resume from is one of the run. */
#ifndef LATHE_RUN_RESUME_CHECK_H
#define LATHE_RUN_RESUME_CHECK_H

#include "run/run_state.h"

/** Refuses a checkpoint of other plugins, other data or another model, at the key that differs; reads run.json and the
 *  heads of the other files. A damaged one is left to resuming, which takes the one before it. After the plan and the
 *  data. */
lathe_status lathe__resume_check(lathe_run *run);

#endif

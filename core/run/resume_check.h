/* Whether the checkpoint that a training would resume from is one of the run, and what changed
 * since. */
#ifndef LATHE_RUN_RESUME_CHECK_H
#define LATHE_RUN_RESUME_CHECK_H

#include "run/run_state.h"

/** Refuses a checkpoint of other plugins, other data or another model, at the key that differs, and
 * warns, once, of keys that may differ but change the run. Reads the manifest, run.json and the
 * heads of the other files; one that is damaged is passed over for the one before it, as resuming
 * does. After the plan and the data. */
lathe_status lathe__resume_check(lathe_run *run);

/** The same of one checkpoint, which has verified, just before the run reads it; nothing for the
 * one that lathe__resume_check looked at. LATHE_E_CONFIG: refused. */
lathe_status lathe__resume_check_loaded(lathe_run *run, const char *dir);

#endif

/* Checks that the checkpoint to resume from belongs to the run, and reports what changed since
 * then. */
#ifndef LATHE_RUN_RESUME_CHECK_H
#define LATHE_RUN_RESUME_CHECK_H

#include <jansson.h>

#include "run/state/run_state.h"

/** Finds the checkpoint from which the run would resume, in the run's arena; NULL: none. Does not
 * check whether it is damaged. Errors: those of lathe_checkpoint_resolve. */
lathe_status lathe_resume_find(lathe_run *run, const char **out_dir);

/** Like lathe_resume_find, with "meta" of the checkpoint's manifest, for code that compares with it
 *  or takes settings from it; the caller releases *out_meta. NULL: there is none, or it cannot be
 *  read, which resuming or reading it says. LATHE_E_NOMEM. */
lathe_status lathe_resume_meta(lathe_run *run, const char **out_dir, json_t **out_meta);

/** Refuses a checkpoint with other plugins, other data or another model, and names the key that
 * differs. Warns once of keys that may differ but change the training. Reads the manifest, run.json
 * and the headers of the other files. A damaged checkpoint is skipped, as in resuming: the one
 * before it is checked. Call it after the plan and the data are made. */
lathe_status lathe__resume_check(lathe_run *run);

/** Makes the same check of one verified checkpoint, just before the run reads it; does nothing if
 * lathe__resume_check has already checked it. LATHE_E_CONFIG: refused. */
lathe_status lathe__resume_check_loaded(lathe_run *run, const char *dir);

#endif

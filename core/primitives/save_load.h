/* Resumes a run from the checkpoint that checkpoint.resume names. lathe_save and lathe_load are in
 * the C API, lathe/lathe.h. */
#ifndef LATHE_PRIMITIVES_SAVE_LOAD_H
#define LATHE_PRIMITIVES_SAVE_LOAD_H

#include "run/run_state.h"

/** Calls lathe_checkpoint_resume; then fills the weights if they were not filled before and no
 * checkpoint provided them. */
lathe_status lathe__run_resume(lathe_run *run, const char **out_path);

#endif

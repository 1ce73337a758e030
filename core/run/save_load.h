/* Resuming a run from what checkpoint.resume names. lathe_save and lathe_load are in the C API,
 * lathe/lathe.h. */
#ifndef LATHE_RUN_SAVE_LOAD_H
#define LATHE_RUN_SAVE_LOAD_H

#include "run/run_state.h"

/** lathe_checkpoint_resume, then the weights, where the run waited for them and no checkpoint
 * brought them. */
lathe_status lathe__run_resume(lathe_run *run, const char **out_path);

#endif

/* Prepares a dry run: a training of two steps that keeps no files. */
#ifndef LATHE_RUN_DRY_RUN_H
#define LATHE_RUN_DRY_RUN_H

#include "run/state/run_state.h"

/** Changes the settings to two steps, no run folder, no checkpoint to resume and no samples;
 * prepared data go to a temporary folder of the system. LATHE_E_IO: this folder cannot be made. */
lathe_status lathe__dry_run_begin(lathe_run *run);
/** Removes that folder; does nothing for other runs. */
void lathe__dry_run_end(lathe_run *run);

#endif

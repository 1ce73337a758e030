/* A dry run: a training that is opened and takes two steps, and of which nothing remains. */
#ifndef LATHE_RUN_DRY_RUN_H
#define LATHE_RUN_DRY_RUN_H

#include "run/run_state.h"

/** Changes the settings: no folder of the run, no checkpoint to resume, no samples; two steps;
 * prepared data go to a folder of the system's temporary files. LATHE_E_IO: it cannot be made. */
lathe_status lathe__dry_run_begin(lathe_run *run);
/** Removes that folder; nothing for other runs. */
void lathe__dry_run_end(lathe_run *run);

#endif

/* Provides the state of a run for core/checkpoint. */
#ifndef LATHE_RUN_RUN_SAVED_H
#define LATHE_RUN_RUN_SAVED_H

#include "run/run_state.h"

/** Fills in run->saved from the settings as they are now, and returns it. Valid while the run is
 * open. */
const lathe_saved_state *lathe__run_saved(lathe_run *run);

#endif

/* Provides the parts of a run that functions of lower rooms take together: the state that a
 * checkpoint holds, and the average of the weights. */
#ifndef LATHE_RUN_RUN_SAVED_H
#define LATHE_RUN_RUN_SAVED_H

#include "optim/weight_average.h"
#include "run/state/run_state.h"

/** Fills in run->saved from the settings as they are now, and returns it. Valid while the run is
 * open. */
const lathe_saved_state *lathe__run_saved(lathe_run *run);

/** The average of the run's weights, and the parts that it works on. */
lathe_averaging lathe__run_averaging(lathe_run *run);

#endif

/* Checks whether a run can make the curvature estimates that its optimizer wants
 * (optim/curvature.h). */
#ifndef LATHE_RUN_CURVATURE_CHECK_H
#define LATHE_RUN_CURVATURE_CHECK_H

#include "run/state/run_state.h"

/** Number of updates from one estimate to the next; 0: the optimizer wants none, or the run is not
 * open for training. */
int64_t lathe__curvature_every(const lathe_run *run);

/** Builds run->programs.sampling, after the training program. LATHE_E_CONFIG: the stage has no
 * labels to draw. */
lathe_status lathe__curvature_build(lathe_run *run);

/** Returns LATHE_E_CONFIG if the optimizer needs estimates and the stage declares that it has no
 * labels. */
lathe_status lathe__curvature_check_stage(const lathe_run *run);

/** Returns the status of preparing run->programs.sampling; LATHE_E_CONFIG if the device cannot draw
 * labels. */
lathe_status lathe__curvature_prepared(const lathe_run *run, lathe_status status);

#endif

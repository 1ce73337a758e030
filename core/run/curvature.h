/* Makes curvature estimates: after some updates, one more backward pass with labels drawn from the
 * model itself.
 *
 * An optimizer with estimate_every() = k > 0 gets an estimate after the updates 1, k + 1, 2k + 1,
 * ... The last micro-batch runs forward with the updated weights. At each target of the batch a
 * label is drawn from the model's distribution, and the gradients for these labels are passed to
 * estimate(). Nothing else in the run changes: no data, counters or figures; dropout uses the masks
 * of that micro-batch. The random numbers come from a counter (seed, update, a separate stream,
 * row), so a resumed run draws the same labels.
 *
 * Source: Gauss-Newton-Bartlett, arXiv:2305.14342, algorithm 2. Deviation: the micro-batch is the
 * last one of the step; the authors read another one from the data.
 */
#ifndef LATHE_RUN_CURVATURE_H
#define LATHE_RUN_CURVATURE_H

#include "run/run_state.h"

/** Number of updates from one estimate to the next; 0: the optimizer wants none. */
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

/** Makes an estimate if one is due after the update `args`; afterwards gradients count as cleared.
 * Gradients that are not finite, and a batch without targets, are skipped with a warning. Allocates
 * nothing. */
lathe_status lathe__curvature_estimate(lathe_run *run, const lathe_update_args *args);

/** FLOP of the estimates, averaged per step. */
double lathe_curvature_flops(const lathe_run *run);

#endif

/* Curvature estimates: behind a step, one more backward whose labels the model draws itself.
 *
 * An optimizer with estimate_every() = k > 0 gets one behind the updates 1, k + 1, 2k + 1, ...: the
 * last micro-batch goes forward with the updated weights, labels are drawn from the model's
 * distribution where the batch has any, and the gradients of those go to estimate(). Nothing else
 * of the run moves: no data, no counts, no figures; dropout keeps the masks of the micro-batch. The
 * draws come from a counter (seed, update, a stream of their own, row): a resumed run makes the
 * same.
 *
 * Source: Gauss-Newton-Bartlett, arXiv:2305.14342, algorithm 2. Ours: the micro-batch is the step's
 * last, where the authors take one more from the data.
 */
#ifndef LATHE_RUN_CURVATURE_H
#define LATHE_RUN_CURVATURE_H

#include "run/run_state.h"

/** Updates from one estimate to the next; 0: none are wanted. */
int64_t lathe__curvature_every(const lathe_run *run);

/** Builds run->programs.sampling, once train is built. LATHE_E_CONFIG: the stage has no labels to
 * draw. */
lathe_status lathe__curvature_build(lathe_run *run);

/** LATHE_E_CONFIG: an estimate is wanted with a stage that says beforehand that it has no labels.
 */
lathe_status lathe__curvature_check_stage(const lathe_run *run);

/** Passes on the status of preparing run->programs.sampling; LATHE_E_CONFIG where the device cannot
 * draw. */
lathe_status lathe__curvature_prepared(const lathe_run *run, lathe_status status);

/** Makes an estimate when one is due behind the update `args`. Gradients count as cleared behind
 * it. Not finite ones, and a batch without targets, are left out with a warning. Allocates nothing.
 */
lathe_status lathe__curvature_estimate(lathe_run *run, const lathe_update_args *args);

/** FLOP of the estimates per step, on average. */
double lathe_curvature_flops(const lathe_run *run);

#endif

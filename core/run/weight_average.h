/* Keeps an average of the trained weights, as a separate f32 copy.
 *
 *   ema        a += (1 - decay) * (w - a)   after each update that is included
 *   swa        a += (w - a) / k             k: number of updates included so far, with this one
 *   optimizer  a = result of the optimizer's average(), computed when it is needed
 *
 * The included steps are start, start + every, ..., if they updated the weights. Before the first
 * of them, a is a bitwise copy of w. The form d*a + (1-d)*w is not used: after rounding, d + (1-d)
 * may differ from 1, and then constant weights would differ from their average.
 */
#ifndef LATHE_RUN_WEIGHT_AVERAGE_H
#define LATHE_RUN_WEIGHT_AVERAGE_H

#include "run/run_state.h"

/** Plans the memory of the average with the store, if the run keeps an average. LATHE_E_CONFIG:
 * train.weight_average is set although the optimizer averages by itself, or it starts at a step
 * that the run does not reach. */
lathe_status lathe__average_plan(lathe_run *run);

/** Makes only the first of these two checks. */
lathe_status lathe__average_check_optimizer(const lathe_run *run);

/** Repeats the second of these checks, for a length that was not known when the plan was made. */
lathe_status lathe__average_check_start(const lathe_run *run);

/** Checks an optimizer whose average replaces a schedule, for a run of `total` steps (0: unknown).
 * LATHE_E_CONFIG: the scheduler lowers the rate. A scheduler that raises the rate gives a
 * warning. */
lathe_status lathe__average_check_schedule(const lathe_run *run, int64_t total);

/** Sets the average to the weights; no update is included yet. */
lathe_status lathe__average_begin(lathe_run *run);

/** Includes the weights in the average when the step is due; call it after every step that updated
 * something. Makes one pass and allocates nothing. The result does not depend on the number of
 * threads. */
lathe_status lathe__average_step(lathe_run *run);

/** Fills the average from an optimizer that averages by itself. Call it before every evaluation and
 * every save. */
lathe_status lathe__average_fill(lathe_run *run);

/** 1: the average differs from the trained weights. */
int32_t lathe__average_is_apart(const lathe_run *run);

/** Exchanges the weights with the average, element by element, and updates the compute copies. A
 * second call restores every bit. */
lathe_status lathe__average_swap(lathe_run *run);

#endif

/* The average of the weights: an f32 copy of what is trained, of its own.
 *
 *   ema        a += (1 - decay) * (w - a)      after the updates that are taken in
 *   swa        a += (w - a) / k                k: how many were taken in, this one among them
 *   optimizer  a = what its average() gives, made when it is wanted
 *
 * Taken in are the steps start, start + every, ... that updated something. Until the first of them a is
 * a copy of w, bit by bit. d*a + (1-d)*w would be the same but for d + (1-d) != 1 once rounded: weights
 * that rest would not be those of their average.
 */
#ifndef LATHE_RUN_WEIGHT_AVERAGE_H
#define LATHE_RUN_WEIGHT_AVERAGE_H

#include "run/run_state.h"

/** Lays the copy out, with the store, when the run has one. LATHE_E_CONFIG: train.weight_average beside an
 *  optimizer that averages by itself, or from a step on that the run does not reach. */
lathe_status lathe__average_plan(lathe_run *run);

/** The first of these alone. */
lathe_status lathe__average_check_optimizer(const lathe_run *run);

/** The second of these again, for a length that the plan did not know. */
lathe_status lathe__average_check_start(const lathe_run *run);

/** LATHE_E_CONFIG: an optimizer that averages by itself, in the place of a schedule, beside a scheduler
 *  that lowers the rate in a run of `total` steps (0: not known). One that raises it is a warning. */
lathe_status lathe__average_check_schedule(const lathe_run *run, int64_t total);

/** The copy becomes the weights; nothing is taken in. */
lathe_status lathe__average_begin(lathe_run *run);

/** After a step that updated something. One pass; allocates nothing; the bits do not depend on threads. */
lathe_status lathe__average_step(lathe_run *run);

/** Asks an optimizer that averages for its average. Before every evaluation and every save. */
lathe_status lathe__average_fill(lathe_run *run);

/** 1: the average is another set of weights than those that are trained. */
int32_t lathe__average_is_apart(const lathe_run *run);

/** Exchanges weights and average, element by element, and makes the compute copies anew: twice leaves
 *  every bit as it was. */
lathe_status lathe__average_swap(lathe_run *run);

#endif

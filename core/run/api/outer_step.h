/* Rounds of DiLoCo in the steps of a run (parallel/islands/islands.h). */
#ifndef LATHE_RUN_OUTER_STEP_H
#define LATHE_RUN_OUTER_STEP_H

#include "run/state/run_state.h"

/** Before each update: keeps the weights at the begin of the first round. Does nothing without
 *  islands. */
void lathe__round_begin(lathe_run *run);

/** Ends the round if it ends with the step that was just counted: then all islands have the same
 *  weights, and know whether one was asked to stop. All ranks call it after each step, also after
 *  one that updated nothing. */
lathe_status lathe__round_after_step(lathe_run *run);

/** Whether islands decide together, when a round ends, that one of them has left out too many steps
 *  in a row. In fp16 they do not: there a step that is left out may only lower the loss scale. 0
 *  without islands. */
int32_t lathe__islands_count_skips(const lathe_run *run);

#endif

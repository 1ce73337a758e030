/* Checks the average of the weights against the optimizer, the schedule and the run's length. */
#ifndef LATHE_RUN_AVERAGE_CHECK_H
#define LATHE_RUN_AVERAGE_CHECK_H

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

#endif

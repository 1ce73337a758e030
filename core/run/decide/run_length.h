/* The length of a run that is given in passes over the data (train.epochs).
 *
 * The position in the data decides when it ends, not the number of steps: a run that resumes with
 * other rows per step (micro_batch_size, gradient_accumulation_steps, ranks) still learns from
 * each row train.epochs times. train.max_steps is computed from the rows that are left, and with
 * unchanged rows per step it stays the same.
 */
#ifndef LATHE_RUN_RUN_LENGTH_H
#define LATHE_RUN_RUN_LENGTH_H

#include "run/state/run_state.h"

/** Computes settings.max_steps from the run's position in the data: the steps so far, and those
 *  that the rest of the wanted rows takes. Nothing if train.max_steps is the length. Call it
 *  whenever the position changed other than by a step. */
void lathe__run_follow_cursor(lathe_run *run);

/** Takes train.epochs as the length of the run if train.max_steps is unset, and there are data. */
void lathe__run_count_epochs(lathe_run *run);

/** Passes over the data so far: 1.25 after a quarter of the second. */
double lathe__run_epoch(const lathe_run *run);

/** Rows (pairs) of a step of all ranks. */
int64_t lathe__run_step_rows(const lathe_run *run);

#endif

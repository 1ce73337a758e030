/* The number of steps of a run by train.epochs, which its data decide. */
#ifndef LATHE_RUN_STEP_COUNT_H
#define LATHE_RUN_STEP_COUNT_H

#include "run/open/opening.h"

/** Counts the steps of the run: train.max_steps, or else those of train.epochs on one rank.
 * Prepares the data in data.cache_dir, as lathe data does, so that a training finds them there.
 *
 *  Errors  those of opening the data. */
lathe_status lathe_run_count_steps(const lathe_run_source *from, int64_t *out);

/** Sets the steps of a run that was planned from its data, if train.epochs gives them. */
lathe_status lathe_run_count_planned(lathe_run *run);

#endif

/* The number of steps of a run by train.epochs, which its data decide. */
#ifndef LATHE_PLANCMD_STEP_COUNT_H
#define LATHE_PLANCMD_STEP_COUNT_H

#include "config/config.h"

/** Counts the steps of the run: train.max_steps, or else those of train.epochs on one rank.
 * Prepares the data in data.cache_dir, as lathe data does, so that a training finds them there.
 *
 *  Errors  those of opening the data. */
lathe_status lathe_count_steps(const char *path, const lathe_override *overrides,
                               int32_t n_overrides, int64_t *out);

#endif

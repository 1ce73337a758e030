/* Checks the settings, the figures, the data and the weight files of a run against each other. */
#ifndef LATHE_RUN_RUN_CHECK_H
#define LATHE_RUN_RUN_CHECK_H

#include "run/run_state.h"

/** Checks that a schedule supports a run of `total` steps. out_cut_short may be NULL. If the only
 * fault is that the run is too short for the schedule, *out_cut_short says why; the rates are then
 * those of the first steps of a longer run. The text is valid until the thread's next call. Errors:
 * those of the scheduler's check. */
lathe_status lathe_run_check_schedule(const lathe_instance *scheduler, int64_t total,
                                      const char **out_cut_short);

/** Refuses keys of the core's sections that contradict each other, and warns of keys without effect
 * (settings_check.c). */
lathe_status lathe__settings_check(lathe_run *run);

/** Warns if train.stop_after is not before the end of the run, as far as the length is known. */
void lathe__settings_check_pause(const lathe_run *run);

/** Refuses a checkpoint.best_metric that no step or evaluation of this run reports, and suggests
 * the nearest valid name. Before the plan is made, only misspellings of known names are refused,
 * because the stage's own figures are not known yet. LATHE_E_CONFIG (run_check.c). */
lathe_status lathe__figure_check_best(lathe_run *run);

/** Checks that the kind of each dataset, its columns and its first record suit the stage
 * (data_check.c). */
lathe_status lathe__data_check(lathe_run *run);

/** Compares the headers of the weight files with the model: names, shapes, dtypes; reads no values
 * (run_weights.c). A folder without weight files is accepted if the checkpoint to resume from holds
 * all weights. */
lathe_status lathe__weights_check(lathe_run *run);

#endif

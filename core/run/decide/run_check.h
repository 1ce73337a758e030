/* Checks the figures, the weight files and the plans of a run against its settings. */
#ifndef LATHE_RUN_RUN_CHECK_H
#define LATHE_RUN_RUN_CHECK_H

#include "run/state/run_state.h"

/** A schedule that is longer than the run. */
typedef struct lathe_cut_schedule {
    int32_t is_cut;
    char key[64]; /* of [scheduler]; "": none */
    char why[512];
} lathe_cut_schedule;

/** Checks that a schedule supports a run of `total` steps. If the only fault is that the run is too
 *  short for the schedule, *out says so; the rates are then those of the first steps of a longer
 *  run. Errors: those of the scheduler's check. */
lathe_status lathe_run_check_schedule(const lathe_instance *scheduler, int64_t total,
                                      lathe_cut_schedule *out);

/** Refuses a checkpoint.best_metric that no step or evaluation of this run reports, and suggests
 * the nearest valid name. Before the plan is made, only misspellings of known names are refused,
 * because the stage's own figures are not known yet. LATHE_E_CONFIG (run_check.c). */
lathe_status lathe__figure_check_best(lathe_run *run);

/** Calls the checks of scheduler, optimizer and average that depend on each other, and on the
 * length of the run: `total` steps; 0: not known yet (run_check.c). */
lathe_status lathe__run_check_length(const lathe_run *run, int64_t total);

/* ---- merge_check.c: adapter.merge_every, and the weights into which the run merges ---- */

/** Refuses merging with a method, stage, average or setting that it contradicts, by the keys alone.
 *  Does nothing for a run that does not train or does not merge. */
lathe_status lathe__merge_check(const lathe_run *run);

/** Sets is_merged of every weight that the adapter changes, after the graphs declared the adapter's
 *  parameters and before the store is laid out. Makes the checks above too. LATHE_E_CONFIG: such a
 *  weight is quantized, or is none of the model's. */
lathe_status lathe__merge_plan(lathe_run *run);

/** Checks, once the store is laid out, that adapter.merge_reset can treat the optimizer's state. */
lathe_status lathe__merge_check_reset(const lathe_run *run);

/* ---- average_check.c: the average of the weights ---- */

/** Plans the memory of the average with the store, if the run keeps an average. LATHE_E_CONFIG:
 * train.weight_average is set although the optimizer averages by itself, or it starts at a step
 * that the run does not reach. */
lathe_status lathe__average_plan(lathe_run *run);

/** Checks only that the optimizer does not average by itself beside train.weight_average. */
lathe_status lathe__average_check_optimizer(const lathe_run *run);

/** Checks only that the average starts within the run, once the length of the run is known. */
lathe_status lathe__average_check_start(const lathe_run *run);

/** Checks an optimizer whose average replaces a schedule, for a run of `total` steps (0: unknown).
 * LATHE_E_CONFIG: the scheduler lowers the rate. A scheduler that raises the rate gives a
 * warning. */
lathe_status lathe__average_check_schedule(const lathe_run *run, int64_t total);

/* ---- offload_check.c: what [train] moves to host memory ---- */

/** Sets run->programs.offloads. Call it before the programs are built, because the training graph
 *  contains the copies. LATHE_E_CONFIG: the device cannot copy during the computation. */
lathe_status lathe__offload_plan_activations(lathe_run *run);
/** Warns if offloading was requested but no activation would be in host memory for long enough. */
void lathe__offload_warn_idle(const lathe_run *run);
/** Sets run->store.offload_buffer. LATHE_E_CONFIG: as above. */
lathe_status lathe__offload_plan_state(lathe_run *run);

/** Refuses a scheduler.min_lr above base_lr, the rate that the schedule begins with: it would keep
 *  the rate at min_lr from the first step. LATHE_E_CONFIG. */
lathe_status lathe_run_check_least_rate(const lathe_config *config, double base_lr);

#endif

/* The names of the figures in metrics.jsonl: what checkpoint.best_metric may be. */
#ifndef LATHE_RUN_FIGURE_NAMES_H
#define LATHE_RUN_FIGURE_NAMES_H

#include "run/run_state.h"

/** 1: a figure of this name may come in metrics.jsonl. Figures of the stage are known once the plan
 * is made. */
int32_t lathe__figure_is_known(const lathe_run *run, const char *name);

/** Refuses a checkpoint.best_metric that no step and no evaluation of this run can have, with the
 * nearest name that is one. Before the plan is made only those are refused that are a known name
 * misspelt, because the stage's own figures are not known yet. LATHE_E_CONFIG. */
lathe_status lathe__figure_check_best(lathe_run *run);

#endif

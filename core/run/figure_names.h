/* Lists the names of the figures in metrics.jsonl, which checkpoint.best_metric may name. */
#ifndef LATHE_RUN_FIGURE_NAMES_H
#define LATHE_RUN_FIGURE_NAMES_H

#include "run/run_state.h"

/** 1: metrics.jsonl may contain a figure of this name. The stage's figures are known only after the
 * plan is made. */
int32_t lathe__figure_is_known(const lathe_run *run, const char *name);

/** Refuses a checkpoint.best_metric that no step or evaluation of this run reports, and suggests
 * the nearest valid name. Before the plan is made, only misspellings of known names are refused,
 * because the stage's own figures are not known yet. LATHE_E_CONFIG. */
lathe_status lathe__figure_check_best(lathe_run *run);

#endif

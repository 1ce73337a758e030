/* Lists the names of the figures in metrics.jsonl, which checkpoint.best_metric may name. */
#ifndef LATHE_METRICS_FIGURE_NAMES_H
#define LATHE_METRICS_FIGURE_NAMES_H

#include "lathe/stage.h"
#include "optim/param_groups.h"

/** 1: metrics.jsonl may contain a figure of this name. stage: its figures are known only after the
 * plan is made. */
int32_t lathe_figure_is_known(const lathe_param_groups *groups, const lathe_stage_loss *stage,
                              const char *name);

/** Returns the nearest known name; NULL if none is near. The text is valid until the thread's next
 * call. */
const char *lathe_figure_nearest(const lathe_param_groups *groups, const lathe_stage_loss *stage,
                                 const char *name);

#endif

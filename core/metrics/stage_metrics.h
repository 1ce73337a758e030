/* The metrics of a stage as they are shown. */
#ifndef LATHE_METRICS_STAGE_METRICS_H
#define LATHE_METRICS_STAGE_METRICS_H

#include "lathe/stage.h"

/** Writes the names and values of the stage's metrics that are shown: each sum divided by `count`,
 * or by the sum that it names (NAN while that is 0). sums: [stage->n_metrics]. Returns their
 * number. */
int32_t lathe_stage_metrics(const lathe_stage_loss *stage, const double *sums, double count,
                            const char *names[LATHE_MAX_STAGE_METRICS],
                            double values[LATHE_MAX_STAGE_METRICS]);

#endif

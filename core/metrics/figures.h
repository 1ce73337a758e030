/* The figures of a training step: named numbers that go into its line of metrics.jsonl and into
 * the manifest of its checkpoint. */
#ifndef LATHE_METRICS_FIGURES_H
#define LATHE_METRICS_FIGURES_H

#include "lathe/stage.h"

#define LATHE_MAX_FIGURES (48 + 2 * LATHE_MAX_STAGE_METRICS) /* with room */

typedef struct lathe_figures {
    const char *keys[LATHE_MAX_FIGURES];
    double values[LATHE_MAX_FIGURES];
    int32_t n;
} lathe_figures;

/** Adds a figure; `key` must be valid until the step ends. */
void lathe__figures_add(lathe_figures *f, const char *key, double value);

#endif

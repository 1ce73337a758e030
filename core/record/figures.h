/* The figures of a step: what its line in metrics.jsonl and the manifest of its checkpoint hold. */
#ifndef LATHE_RECORD_FIGURES_H
#define LATHE_RECORD_FIGURES_H

#include "lathe/stage.h"

#define LATHE_MAX_FIGURES (48 + 2 * LATHE_MAX_STAGE_METRICS) /* with room */

typedef struct lathe_figures {
    const char *keys[LATHE_MAX_FIGURES];
    double values[LATHE_MAX_FIGURES];
    int32_t n;
} lathe_figures;

/** One more figure; `key` must live as long as the step. */
void lathe__figures_add(lathe_figures *f, const char *key, double value);

#endif

/* Early stopping: ends a run when so many evaluations in a row brought nothing new.
 *
 * The rule is transformers' EarlyStoppingCallback: an evaluation counts as an improvement when it
 * beats the best one so far by more than the threshold; the best one so far is kept whatever the
 * threshold says. The state travels in the checkpoint, so a resumed run stops at the same step.
 */
#ifndef LATHE_UPDATE_EARLY_STOP_H
#define LATHE_UPDATE_EARLY_STOP_H

#include <stdint.h>

/** Begins as zeros. Plain data, for checkpoints. */
typedef struct lathe_early_stop {
    double best;
    int64_t n_evaluations; /* seen */
    int64_t n_since;       /* since the last improvement */
} lathe_early_stop;

/** Takes an evaluation's metric; `higher`: more is better. A NaN is no improvement. */
void lathe_early_stop_observe(lathe_early_stop *s, double metric, int32_t higher, double threshold);

#endif

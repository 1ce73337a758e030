/* Early stopping: ends a run after a given number of evaluations in a row without improvement.
 *
 * The rule is that of transformers' EarlyStoppingCallback: an evaluation is an improvement if it
 * beats the best one so far by more than the threshold. The best value is updated independently of
 * the threshold. Checkpoints save the state, so a resumed run stops at the same step.
 */
#ifndef LATHE_OPTIM_EARLY_STOP_H
#define LATHE_OPTIM_EARLY_STOP_H

#include <stdint.h>

/** Initially all zeros. Plain data, saved in checkpoints. */
typedef struct lathe_early_stop {
    double best;
    int64_t n_evaluations; /* number of evaluations so far */
    int64_t n_since;       /* since the last improvement */
} lathe_early_stop;

/** Records the metric of an evaluation. `higher` 1: more is better. NAN is not an improvement. */
void lathe_early_stop_observe(lathe_early_stop *s, double metric, int32_t higher, double threshold);

#endif

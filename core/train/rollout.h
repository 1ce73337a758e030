/* One step of a stage that makes its own batches. */
#ifndef LATHE_TRAIN_ROLLOUT_H
#define LATHE_TRAIN_ROLLOUT_H

#include <signal.h>

#include "run/state/run_state.h"

/** Input and results of a step. */
typedef struct lathe_rollout {
    const volatile sig_atomic_t *stop; /* in: becomes 1 when the run is to end; NULL: never */
    int32_t bad;        /* number of the batch whose loss is not finite, from 1; 0: none */
    int32_t is_stopped; /* 1: the stage stopped before it accumulated gradients */
    double loss;        /* of the bad batch */
    double figures[LATHE_MAX_STAGE_FIGURES]; /* NaN: the stage gave none */
} lathe_rollout;

/** Calls the stage's iterate, which accumulates the gradients of one optimizer step in the run.
 *  A loss that is not finite is not an error; it sets `bad`.
 *  Errors  LATHE_E_PLUGIN: the stage accumulated nothing and was not asked to stop; the errors of
 *          the stage and of the functions that it calls. */
lathe_status lathe_rollout_step(lathe_run *run, lathe_rollout *rollout);

/** Makes the stage's state that before the last step. */
void lathe_rollout_undo(lathe_run *run);

#endif

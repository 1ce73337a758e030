/* One step of a stage that makes its own batches. */
#ifndef LATHE_ROLLOUT_ROLLOUT_H
#define LATHE_ROLLOUT_ROLLOUT_H

#include <signal.h>

#include "run/run_state.h"

/** The step, and what came of it. */
typedef struct lathe_rollout {
    const volatile sig_atomic_t *stop; /* in: set to 1 when the run is to end; NULL: never */
    int32_t bad;        /* the batch whose loss is not finite, counted from 1; 0: none */
    int32_t is_stopped; /* 1: the stage stopped before it accumulated gradients */
    double loss;        /* of the bad batch */
    double figures[LATHE_MAX_STAGE_FIGURES]; /* NaN: not given */
} lathe_rollout;

/** Calls the stage's iterate, which accumulates the gradients of one optimizer step in the run.
 *  LATHE_E_PLUGIN: it accumulated nothing and was not asked to stop. Errors of the stage and of
 * what it calls. A loss that is not finite is no error: `bad`. */
lathe_status lathe_rollout_step(lathe_run *run, lathe_rollout *rollout);

#endif

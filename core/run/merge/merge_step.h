/* Merges the run's adapter into the weights after a step (adapter.merge_every). */
#ifndef LATHE_RUN_MERGE_STEP_H
#define LATHE_RUN_MERGE_STEP_H

#include "run/state/run_state.h"

/** To call when a step was counted, with or without an update. If a merge is due after step
 *  run->at.step: adds the adapter to the f32 masters of its weights, refreshes their compute
 *  copies, gives the adapter new initial values (random ones from the counter RNG, keyed by seed,
 *  step and name) and resets its optimizer state. Every rank computes the same.
 *
 *  Waits for the device. On a device with its own memory the work is done in host memory. */
lathe_status lathe__merge_after_step(lathe_run *run);

#endif

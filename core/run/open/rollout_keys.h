/* Checks the keys of [generate] against a stage that writes the completions it learns from. */
#ifndef LATHE_RUN_ROLLOUT_KEYS_H
#define LATHE_RUN_ROLLOUT_KEYS_H

#include "run/state/run_state.h"

/** Warns of each key of [generate] that chooses how tokens are drawn, if the file sets it and the
 *  run draws only completions of the stage, which chooses that itself. No warning if the run has
 *  samples (generate.every), which the keys apply to. Needs the stage. */
void lathe__rollout_keys_warn(const lathe_run *run);

#endif

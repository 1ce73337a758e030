/* Checks the objective of a run's stage (lathe/stage.h) against the other settings, the tokenizer
 * and the model. A causal objective has nothing to check. */
#ifndef LATHE_RUN_OBJECTIVE_CHECK_H
#define LATHE_RUN_OBJECTIVE_CHECK_H

#include "run/state/run_state.h"

/** The run's LATHE_OBJECTIVE_*; CAUSAL for a run that only generates. */
int32_t lathe__run_objective(const lathe_run *run);

/** Refuses samples during a training whose objective is not causal. */
lathe_status lathe__objective_check(const lathe_run *run);
/** Finds the tokens that the objective needs, for run->data.objective; refuses a tokenizer without
 *  a mask token. The tokenizer must be loaded. */
lathe_status lathe__objective_tokens(lathe_run *run);
/** Refuses a model with windows of attention that rows would reach beyond, and a model that is not
 *  causal ("is_causal": false in its config.json) for another objective than masked. Marks the
 *  model of a masked objective as such, for the config.json of checkpoints. */
lathe_status lathe__objective_check_model(lathe_run *run);
/** Refuses generation, which is causal, with a model that is trained otherwise. */
lathe_status lathe__objective_check_generation(const lathe_run *run);

#endif

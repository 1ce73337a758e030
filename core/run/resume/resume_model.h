/* Compares the model of a checkpoint with the model of the run. */
#ifndef LATHE_RUN_RESUME_MODEL_H
#define LATHE_RUN_RESUME_MODEL_H

#include <jansson.h>

#include "run/state/run_state.h"

/** Lists the differences between config.json of the checkpoint `dir` and the run's model that
 * change what the model computes: {"model.rope_theta": {"from": 10000.0, "to": 500.0}, ...}. Empty
 * if there are none, or if the folder holds only an adapter. The caller releases it. */
lathe_status lathe__resume_model_changes(const lathe_run *run, const char *dir, json_t **out);

/** Compare the headers of the model's file, or of the adapter's file, with the run's parameters.
 * LATHE_E_SHAPE, LATHE_E_NOT_FOUND, LATHE_E_CONFIG: they differ. */
lathe_status lathe__resume_model_check(const lathe_model_config *model, const lathe_params *params,
                                       const char *dir);
lathe_status lathe__resume_adapter_check(lathe_run *run, const char *dir);

#endif

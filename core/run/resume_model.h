/* The model of a checkpoint against the run's. */
#ifndef LATHE_RUN_RESUME_MODEL_H
#define LATHE_RUN_RESUME_MODEL_H

#include <jansson.h>

#include "run/run_state.h"

/** What the config.json of the checkpoint `dir` says otherwise than the run's model, as far as it
 * changes what the model computes: {"model.rope_theta": {"from": 10000.0, "to": 500.0}, ...}.
 * Empty: nothing, or the folder holds an adapter alone. The caller drops it. */
lathe_status lathe__resume_model_changes(const lathe_run *run, const char *dir, json_t **out);

/** LATHE_E_SHAPE, LATHE_E_NOT_FOUND, LATHE_E_CONFIG: the heads of the model's file, or of the
 * adapter's, are not those of the run's parameters. */
lathe_status lathe__resume_model_check(const lathe_run *run, const char *dir);
lathe_status lathe__resume_adapter_check(lathe_run *run, const char *dir);

#endif

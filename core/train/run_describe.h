/* Describes a run as JSON: configuration, model, plan, plugins, machine. */
#ifndef LATHE_TRAIN_RUN_DESCRIBE_H
#define LATHE_TRAIN_RUN_DESCRIBE_H

#include <jansson.h>

#include "run/state/run_state.h"

/** Describes an opened run for run.json, without its lineage. The caller drops it. */
lathe_status lathe__run_describe(const lathe_run *run, double peak_flops, json_t **out);

#endif

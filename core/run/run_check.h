/* Whether a run would start, for lathe validate. */
#ifndef LATHE_RUN_RUN_CHECK_H
#define LATHE_RUN_RUN_CHECK_H

#include "plug/config.h"

/** Adds to diags what a run of the configuration, loaded without an error, would refuse: rules across a
 *  part's keys, parts that do not go together, a schedule longer than the run, a model description that
 *  is wrong. Reads config.json and, for its size alone, a tokenizer; no weights, no data, no device. */
lathe_status lathe_run_check(lathe_config *config, lathe_registry *registry, lathe_diags *diags);

#endif

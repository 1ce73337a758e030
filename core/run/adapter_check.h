/* Whether what the adapter's configuration names is in the model. */
#ifndef LATHE_RUN_ADAPTER_CHECK_H
#define LATHE_RUN_ADAPTER_CHECK_H

#include "run/run_state.h"

/** Lets the adapter check its patterns against the model's linear sites. LATHE_E_CONFIG:
 * "run.toml:9:1: error: lora: target_modules[1] = ... matches no module; the model has q_proj,
 * ...". */
lathe_status lathe__adapter_check(lathe_run *run);

/** Refuses an adapter that leaves every parameter as it is and adds none. After the choice of what
 * trains. */
lathe_status lathe__adapter_check_trains(const lathe_run *run);

#endif

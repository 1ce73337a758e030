/* Checks that the modules named in the adapter's configuration exist in the model. */
#ifndef LATHE_RUN_ADAPTER_CHECK_H
#define LATHE_RUN_ADAPTER_CHECK_H

#include "run/state/run_state.h"

/** Lets the adapter check its patterns against the model's linear sites. LATHE_E_CONFIG:
 * "run.toml:9:1: error: lora: target_modules[1] = ... matches no module; the model has q_proj,
 * ...". */
lathe_status lathe__adapter_check(lathe_run *run);

/** Gives the adapter's refusal (lathe_error_message(), "freeze: layers = 31, ...") the place of the
 *  key that it begins with. Returns LATHE_E_CONFIG. */
lathe_status lathe__adapter_refuse(const lathe_run *run);

/** Refuses an adapter that trains only beside a quantized base if no row is quantized. Call it
 * after the quantized rows are chosen. */
lathe_status lathe__adapter_check_base(const lathe_run *run);

/** Refuses an adapter that trains no parameter of the model and adds none. Call it after the
 * trained parameters are chosen. */
lathe_status lathe__adapter_check_trains(const lathe_run *run);

/** Whether the model before training is the base with the adapter's first values. */
int32_t lathe__adapter_starts_elsewhere(const lathe_instance *adapter);

#endif

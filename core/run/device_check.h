/* Whether the run's parts can work on its device, told before anything is placed. */
#ifndef LATHE_RUN_DEVICE_CHECK_H
#define LATHE_RUN_DEVICE_CHECK_H

#include "run/run_state.h"

/** LATHE_E_CONFIG: the optimizer updates on the host, and the host cannot touch the device's
 * memory; the message names both, and the optimizers that run there. Behind the store's layout. */
lathe_status lathe__device_check(const lathe_run *run);

/** Whether an optimizer works where the host cannot touch the memory, at all of what it does. */
int32_t lathe__optimizer_runs_on_device(const lathe_optimizer_v1 *table);

#endif

/* Checks, before memory is allocated, that the run's parts can work on its device. */
#ifndef LATHE_RUN_DEVICE_CHECK_H
#define LATHE_RUN_DEVICE_CHECK_H

#include "run/state/run_state.h"

/** Returns LATHE_E_CONFIG if the optimizer updates on the host and the host cannot access the
 * device's memory; the message names both, and the optimizers that do work. Call it after the
 * store's layout. */
lathe_status lathe__device_check(const lathe_run *run);

/** Whether all functions of an optimizer work on a device whose memory the host cannot access. */
int32_t lathe__optimizer_runs_on_device(const lathe_optimizer_v1 *table);

#endif

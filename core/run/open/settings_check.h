/* Checks keys of the core's sections against each other. */
#ifndef LATHE_RUN_SETTINGS_CHECK_H
#define LATHE_RUN_SETTINGS_CHECK_H

#include "run/state/run_state.h"

/** Refuses keys of the core's sections that contradict each other, and warns of keys without
 *  effect. */
lathe_status lathe__settings_check(lathe_run *run);

/** Warns if train.stop_after is not before the end of the run, as far as the length is known. */
void lathe__settings_check_pause(const lathe_run *run);

#endif

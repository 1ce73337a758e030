/* Checks [parallel]: what its keys do not combine with, and whether they suit the number of
 * ranks. */
#ifndef LATHE_RUN_PARALLEL_CHECK_H
#define LATHE_RUN_PARALLEL_CHECK_H

#include "run/state/run_state.h"

/** LATHE_E_CONFIG at the key that is wrong. The number of ranks is that of run->ranks, or the one
 *  that the run is planned for; without either it is not checked. */
lathe_status lathe__parallel_check(const lathe_run *run);

#endif

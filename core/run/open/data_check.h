/* Checks the datasets of a run against its stage. */
#ifndef LATHE_RUN_DATA_CHECK_H
#define LATHE_RUN_DATA_CHECK_H

#include "run/state/run_state.h"

/** Checks that the kind of each dataset, its columns and its first record suit the stage. */
lathe_status lathe__data_check(lathe_run *run);

#endif

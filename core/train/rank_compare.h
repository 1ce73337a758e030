/* Refuses ranks that differ in what all of them must have in common. */
#ifndef LATHE_TRAIN_RANK_COMPARE_H
#define LATHE_TRAIN_RANK_COMPARE_H

#include "run/state/run_state.h"

/** Compares the program, the settings, the plugins, the plan and the data of all ranks.
 * LATHE_E_RANK on all of them if one differs; its message names the difference. */
lathe_status lathe__ranks_compare(lathe_run *run);

#endif

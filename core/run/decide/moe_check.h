/* Refuses settings of [moe] that the model's family does not follow. */
#ifndef LATHE_RUN_MOE_CHECK_H
#define LATHE_RUN_MOE_CHECK_H

#include "run/state/run_state.h"

/** Call it when the programs are built. LATHE_E_CONFIG at the key: the model has no experts, or its
 *  family reports no loss that the key is a setting of. */
lathe_status lathe__moe_check(const lathe_run *run);

#endif

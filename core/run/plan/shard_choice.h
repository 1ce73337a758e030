/* parallel.shard = "auto": the least that ranks must divide so that the run fits. */
#ifndef LATHE_RUN_SHARD_CHOICE_H
#define LATHE_RUN_SHARD_CHOICE_H

#include "run/state/run_state.h"

/** Replaces run->set.shard if it is AUTO: plans the run with each division, from none to all, until
 *  the plan fits the memory of every rank; logs what each needs. One rank divides nothing. If none
 *  fits it is all, and lathe__run_fits refuses it. All ranks call it, before the plan. */
lathe_status lathe__choose_shard(lathe_run *run);

#endif

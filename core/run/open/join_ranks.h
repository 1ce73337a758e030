/* Joins the ranks of a run. */
#ifndef LATHE_RUN_JOIN_RANKS_H
#define LATHE_RUN_JOIN_RANKS_H

#include "run/state/run_state.h"

/** Joins the ranks that were started with this one, by the engine of [collective] and, on a device
 *  with memory of its own, by one for that memory; run->ranks stays NULL if there is one rank.
 * Ranks other than 0 get no checkpoint.dir, no samples and no progress. LATHE_E_CONFIG: the run
 * asks for what several ranks cannot do. */
lathe_status lathe__run_join(lathe_run *run);

/** Whether the engine that [collective] names takes its settings and suits the device, without
 *  joining anything. LATHE_E_CONFIG. */
lathe_status lathe__run_check_engine(lathe_run *run);

#endif

/* Checks adapter.merge_every, and marks the weights into which the run merges its adapter. */
#ifndef LATHE_RUN_MERGE_CHECK_H
#define LATHE_RUN_MERGE_CHECK_H

#include "run/run_state.h"

/** Refuses merging with a method, stage, average or setting that it contradicts, by the keys alone.
 *  Does nothing for a run that does not train or does not merge. */
lathe_status lathe__merge_check(const lathe_run *run);

/** Sets is_merged of every weight that the adapter changes, after the graphs declared the adapter's
 *  parameters and before the store is laid out. Makes the checks above too. LATHE_E_CONFIG: such a
 *  weight is quantized, or is none of the model's. */
lathe_status lathe__merge_plan(lathe_run *run);

/** Checks, once the store is laid out, that adapter.merge_reset can treat the optimizer's state. */
lathe_status lathe__merge_check_reset(const lathe_run *run);

#endif

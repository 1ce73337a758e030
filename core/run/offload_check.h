/* The options of [train] that move data to host memory, on a device with its own memory. */
#ifndef LATHE_RUN_OFFLOAD_CHECK_H
#define LATHE_RUN_OFFLOAD_CHECK_H

#include "lathe/lathe.h"

/** Sets run->programs.offloads. Call it before the programs are built, because the training graph
 *  contains the copies. LATHE_E_CONFIG: the device cannot copy during the computation. */
lathe_status lathe__offload_plan_activations(lathe_run *run);
/** Warns if offloading was requested but no activation would be in host memory for long enough. */
void lathe__offload_warn_idle(const lathe_run *run);
/** Sets run->store.offload_buffer. LATHE_E_CONFIG: as above. */
lathe_status lathe__offload_plan_state(lathe_run *run);

#endif

/* Opens the adapters that a run generates with. */
#ifndef LATHE_RUN_NAMED_OPEN_H
#define LATHE_RUN_NAMED_OPEN_H

#include "run/parts/named_adapters.h"

/** Makes the instances of run->named from the settings in their folders; does nothing without any.
 *  Call it after the components. LATHE_E_CONFIG: an adapter belongs to another model, or cannot
 *  stand beside others. */
lathe_status lathe__named_adapters_open(lathe_run *run);

#endif

/* The adapter of the reference model: model.reference_adapter, over the model of the run. */
#ifndef LATHE_RUN_REFERENCE_ADAPTER_H
#define LATHE_RUN_REFERENCE_ADAPTER_H

#include "run/state/run_state.h"

/** Makes run->parts.reference_adapter from the settings in the folder, if model.reference_adapter
 *  names one; else does nothing. Call it after the components. LATHE_E_CONFIG, at the key: there is
 *  no such adapter, it belongs to another model or format, or the stage has no reference. */
lathe_status lathe__reference_adapter_open(lathe_run *run);

#endif

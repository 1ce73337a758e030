/* The adapter of the reference model: model.reference_adapter, over the model of the run. */
#ifndef LATHE_OPENING_REFERENCE_ADAPTER_H
#define LATHE_OPENING_REFERENCE_ADAPTER_H

#include "run/run_state.h"

/** Handles a model.reference_adapter that names the folder of a run: the reference is then the
 *  latest checkpoint in it. Its path is added to the settings, which overrides the key.
 *  *out_changed: 1 if a setting was added; then the configuration has to be read again. */
lathe_status lathe__reference_adapter_resolve(lathe_run *run, int *out_changed);

/** Makes run->parts.reference_adapter from the settings in the folder, if model.reference_adapter
 *  names one; else does nothing. Call it after the components. LATHE_E_CONFIG, at the key: there is
 *  no such adapter, it belongs to another model or format, or the stage has no reference. */
lathe_status lathe__reference_adapter_open(lathe_run *run);

#endif

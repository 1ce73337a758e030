/* Opens the adapters that a run generates with. */
#ifndef LATHE_OPENING_NAMED_OPEN_H
#define LATHE_OPENING_NAMED_OPEN_H

#include "run/named_adapters.h"

/** Makes the instances of run->named from the settings in their folders; does nothing without any.
 *  Call it after the components. LATHE_E_CONFIG: an adapter belongs to another model, or cannot
 *  stand beside others. */
lathe_status lathe__named_adapters_open(lathe_run *run);

/** Opens a model to generate with several adapters. named: belongs to the run from now on, also
 *  after an error. */
lathe_status lathe_run_open_named(const lathe_override *overrides, int32_t n_overrides,
                                  lathe_named_adapters *named, lathe_run **out);

#endif

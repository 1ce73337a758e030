/* The quantization format of each parameter of the model. */
#ifndef LATHE_RUN_RUN_FORMATS_H
#define LATHE_RUN_RUN_FORMATS_H

#include "run/state/run_state.h"

/** Gives every frozen matrix its format: the one in which the model's folder stores it, or that of
 *  [quant] if quant.include_modules and quant.exclude_modules choose it. Matrices that the adapter
 *  trains, heads of the stage and embeddings have none.
 *
 *  Errors  LATHE_E_CONFIG at [quant] or the adapter: nothing is quantized, a pattern matches
 * nothing, a format cannot hold a weight, the adapter trains what the folder stores quantized. */
lathe_status lathe__run_formats(lathe_run *run);

/** Frees the formats of the model's folder. */
void lathe__run_formats_fini(lathe_run *run);

#endif

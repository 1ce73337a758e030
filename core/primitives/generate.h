/* What callers of lathe_generator_stream do before it. lathe_generate and lathe_generate_many are
 * in the C API, lathe/lathe.h. */
#ifndef LATHE_PRIMITIVES_GENERATE_H
#define LATHE_PRIMITIVES_GENERATE_H

#include "run/run_state.h"

/** Checks that the run can generate, makes its generator for `batch` sequences at a time, and reads
 * the caller's sampling settings. */
lathe_status lathe__generate_begin(lathe_run *run, const lathe_sampling *how, int32_t batch,
                                   lathe_sampling *out);

/** Returns LATHE_E_ARG if the prompt leaves no room in the context for a new token. Makes the run's
 * generator if it has none. */
lathe_status lathe__generate_check(lathe_run *run, const char *prompt);

#endif

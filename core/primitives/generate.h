/* Preparations before lathe_generator_stream, for its callers. lathe_generate and
 * lathe_generate_many are in the C API, lathe/lathe.h. */
#ifndef LATHE_PRIMITIVES_GENERATE_H
#define LATHE_PRIMITIVES_GENERATE_H

#include "run/run_state.h"

/** Before lathe_generator_stream: checks that the run can generate, makes its generator for `batch`
 * sequences at a time, and reads the caller's sampling settings. */
lathe_status lathe__generate_begin(lathe_run *run, const lathe_sampling *how, int32_t batch,
                                   lathe_sampling *out);

/** Returns LATHE_E_ARG if the prompt leaves no room in the context for a new token. Makes the run's
 * generator if it has none. */
lathe_status lathe__generate_check(lathe_run *run, const char *prompt);

/** asks(arg) returns 1 when a generation is to stop; asks NULL: it never is. */
typedef struct lathe__stop_check {
    int32_t (*asks)(void *arg);
    void *arg;
} lathe__stop_check;

/** lathe_generate_many, except that no further prompts are begun after `stop` asked for the end.
 * Sequences that were begun are completed; out[] of the others is not changed. */
lathe_status lathe__generate_many(lathe_run *run, const lathe_prompt *prompts, int32_t n,
                                  const lathe_sampling *how, lathe__stop_check stop,
                                  lathe_generation *out);

#endif

/* Preparations before lathe_generator_stream, for its callers. lathe_generate and
 * lathe_generate_many are in the C API, lathe/lathe.h. */
#ifndef LATHE_RUN_GENERATE_H
#define LATHE_RUN_GENERATE_H

#include "run/state/run_state.h"

struct lathe_prompt_stream; /* generate/generator.h */

/** Before lathe_generator_stream: checks that the run can generate, makes its generator for `batch`
 * sequences at a time (0: those of generate.batch_size), and reads the caller's sampling settings.
 */
lathe_status lathe__generate_begin(lathe_run *run, const lathe_sampling *how, int32_t batch,
                                   lathe_sampling *out);

/** Returns LATHE_E_ARG if the prompt leaves no room in the context for a new token. Makes the run's
 * generator if it has none. */
lathe_status lathe__generate_check(lathe_run *run, const char *prompt);

/** lathe__generate_check for any prompt, with a generator that is made. */
lathe_status lathe__generate_check_prompt(lathe_run *run, const lathe_prompt *prompt);

/** lathe_generator_stream of the run's generator. */
lathe_status lathe__generate_stream(lathe_run *run, const lathe_sampling *how,
                                    const struct lathe_prompt_stream *stream, int64_t *out_failed);

/** Lets the named adapter `index` (-1: the base) continue the next streams, of
 *  generate.batch_size sequences at a time. */
lathe_status lathe__generate_with_adapter(lathe_run *run, int32_t index);

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

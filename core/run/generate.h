/* The generator of lathe_generate: programs, KV caches and sampler, kept between calls. */
#ifndef LATHE_RUN_GENERATE_H
#define LATHE_RUN_GENERATE_H

#include "base/arena.h"
#include "exec/exec.h"
#include "lathe/lathe.h"

typedef struct lathe_generator lathe_generator;

/** Device memory that a generator needs. */
typedef struct lathe_generator_needs {
    int64_t cache_bytes;                   /* of the KV caches */
    int64_t input_bytes;                   /* of its programs' inputs */
    int64_t staging_bytes;                 /* host buffers for their inputs and outputs */
    int64_t arena_bytes, activation_bytes; /* of the shared arena */
} lathe_generator_needs;

/** plan creates the run's generator for `batch` sequences at a time, without device memory, so that
 * its needs can be planned; place allocates its memory once the arena is allocated. Generating
 * calls both if the caller has not. Where the device's memory is not the host's, or the attention
 * backend cannot read a KV cache in blocks, the generator continues one sequence at a time. */
lathe_status lathe__generator_plan(lathe_run *run, int32_t batch);
lathe_generator_needs lathe__generator_needs(const lathe_run *run);
lathe_status lathe__generator_place(lathe_run *run);
/** Makes a generator for at least `batch` sequences, if the run has none. */
lathe_status lathe__generator_ready(lathe_run *run, int32_t batch);

/** Returns LATHE_E_ARG if the prompt leaves no room in the context for a new token. */
lathe_status lathe__generator_check(lathe_run *run, const char *prompt);

/** Checks that the run can generate, makes a generator for `batch` sequences, and reads the
 * caller's sampling settings. */
lathe_status lathe__generate_begin(lathe_run *run, const lathe_sampling *how, int32_t batch,
                                   lathe_sampling *out);

/** Memory of the results of lathe_generate_many. */
lathe_arena *lathe__generator_results(lathe_run *run);

/** Frees the run's generator, if it has one. */
void lathe_generator_destroy(lathe_run *run);

/** The largest number of blocks of the KV cache that were in use at a time since the last call that
 *  generated began; 0: the cache is not in blocks. */
int32_t lathe__generator_most_blocks(const lathe_run *run);

/** The program that decodes one token per call, for benchmarks; NULL before the first generation.
 */
lathe_exec *lathe__generator_exec(const lathe_run *run);

#endif

/* The generator behind lathe_generate: programs, caches and sampler, kept between calls. */
#ifndef LATHE_RUN_GENERATE_H
#define LATHE_RUN_GENERATE_H

#include "lathe/lathe.h"
#include "run/exec.h"

typedef struct lathe_generator lathe_generator;

/** What a generator takes of the device. */
typedef struct lathe_generator_needs {
    int64_t cache_bytes;                   /* of the KV caches */
    int64_t input_bytes;                   /* of its programs' inputs */
    int64_t staging_bytes;                 /* of what goes into them and comes out */
    int64_t arena_bytes, activation_bytes; /* of the shared arena */
} lathe_generator_needs;

/** Makes the run's generator without taking device memory, so that its needs can be planned; then,
 *  with the arena placed, gives it its memory. lathe_generate does both when nobody has. */
lathe_status lathe__generator_plan(lathe_run *run);
lathe_generator_needs lathe__generator_needs(const lathe_run *run);
lathe_status lathe__generator_place(lathe_run *run);

/** LATHE_E_ARG when the context has no room behind the prompt. */
lathe_status lathe__generator_check(lathe_run *run, const char *prompt);

/** Frees the run's generator, if it has one. */
void lathe_generator_destroy(lathe_run *run);

/** The graph that makes one token after the other, for benches; NULL before the first generation. */
lathe_exec *lathe__generator_exec(const lathe_run *run);

#endif

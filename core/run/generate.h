/* The generator behind lathe_generate: programs, caches and sampler, kept between calls. */
#ifndef LATHE_RUN_GENERATE_H
#define LATHE_RUN_GENERATE_H

#include "lathe/lathe.h"

typedef struct lathe_generator lathe_generator;

/** Frees the run's generator, if it has one. */
void lathe_generator_destroy(lathe_run *run);

#endif

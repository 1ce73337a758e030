/* The programs of a run, and the memory that they share. */
#ifndef LATHE_EXEC_PROGRAMS_H
#define LATHE_EXEC_PROGRAMS_H

#include "exec/program.h"

/** Programs are prepared when they are first needed; train is prepared with the plan. */
typedef struct lathe_programs {
    lathe_program train, eval, logits;
    lathe_program sampling; /* for curvature estimates; no exec: not needed */
    int32_t has_batch;      /* the inputs of train hold the last micro-batch */
    int32_t offloads;       /* train.offload_activations, where it moves something */
    char *arena;            /* one arena, as large as the largest program needs */
    int64_t arena_bytes, activation_bytes;
    float *losses; /* staging for losses that are read later: [1 + metrics] sums per forward */
} lathe_programs;

#endif

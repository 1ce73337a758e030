/* The programs of a run, and the memory that they share. */
#ifndef LATHE_EXEC_PROGRAMS_H
#define LATHE_EXEC_PROGRAMS_H

#include "exec/program/program.h"

enum { LATHE_MAX_SHORT = 7 };

/** Programs of shorter rows than data.seq_len, in ascending order of their row_tokens; chosen by
 *  the longest sequence of a batch (run/parts/short_rows.h). */
typedef struct lathe_short_programs {
    lathe_program train[LATHE_MAX_SHORT], eval[LATHE_MAX_SHORT]; /* no exec: not prepared */
    int32_t n;
} lathe_short_programs;

/** Programs are prepared when they are first needed; train is prepared with the plan. */
typedef struct lathe_programs {
    lathe_program train, eval, logits;
    lathe_short_programs shorter;
    int32_t rank, n_ranks; /* of the run, for its data and random numbers; n_ranks 0 counts as 1 */
    int32_t are_padded;    /* 1: each row of a batch holds one sequence, and padding after it */
    /* The programs of the last training forward and of the last evaluation; NULL: none yet. */
    lathe_program *trained, *evaluated;
    lathe_program scoring;  /* eval for lathe_logprobs, with the bits of generation; f32 only */
    lathe_program top;      /* of lathe logprobs; no exec: not needed */
    lathe_program sampling; /* for curvature estimates; no exec: not needed */
    int64_t state_bytes;    /* of a run that infers: states of ops for one sequence */
    int32_t has_batch;      /* the inputs of train hold the last micro-batch */
    int32_t offloads;       /* train.offload_activations, where it moves something */
    char *arena;            /* one arena, as large as the largest program needs */
    int64_t arena_bytes, activation_bytes;
    float *losses;       /* staging for what is read later: [losses_each] per forward */
    int64_t losses_each; /* the loss, the sums of the metrics, then the loads of experts */
} lathe_programs;

/** Fills the RNG counter `input` of program p (lathe/rng.h) with seed, step and this rank's place.
 */
void lathe_programs_counter(const lathe_programs *programs, const lathe_program *p, lathe_val input,
                            uint64_t seed, int64_t step);

#endif

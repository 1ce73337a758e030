/* Smaller micro-batches for the same training: the one rule for adapter.name = "auto", for the
 * advice of a plan that does not fit, and for a run that resumes with what auto had chosen. */
#ifndef LATHE_RUN_MICRO_BATCHES_H
#define LATHE_RUN_MICRO_BATCHES_H

#include "run/state/run_state.h"

/** A step: n micro-batches of `rows` rows each (train.gradient_accumulation_steps,
 *  train.micro_batch_size). */
typedef struct lathe_micro_batches {
    int32_t rows, n;
} lathe_micro_batches;

/** Whether micro-batches of fewer rows are the same training: not for a stage that makes its own
 *  batches (a rollout's rows depend on them) or takes mismatched examples from them (kto), nor
 *  where the caller of the C API brings the rows. */
int32_t lathe_micro_batches_may_split(const lathe_run *run, lathe_micro_batches batch);

/** Micro-batches of `rows`, a divisor of the batch's, and as many more of them. */
lathe_micro_batches lathe_micro_batches_of(lathe_micro_batches batch, int32_t rows);

/** The next smaller size to try: the largest divisor of batch.rows below `below`; 0: none. Begins
 *  with below = batch.rows. Sizes that do not divide it would change the rows of a step. */
int32_t lathe_micro_batches_next(lathe_micro_batches batch, int32_t below);

/** Adds the two settings to a list; a run that does not train accumulates nothing. */
void lathe_micro_batches_put(lathe_micro_batches batch, int32_t trains, int32_t by,
                             lathe_edits *out);

#endif

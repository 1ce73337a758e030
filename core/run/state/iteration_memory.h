/* Memory that the core keeps for a stage that makes its own batches (lathe_stage_v1.iterate): a
 * part of a run. */
#ifndef LATHE_RUN_ITERATION_MEMORY_H
#define LATHE_RUN_ITERATION_MEMORY_H

#include "checkpoint/state/stage_state.h"
#include "data/rows/loader.h"

/* Norms that have noise while the stage generates (rollout_noise.h). */
typedef struct lathe_noise {
    int32_t *rows; /* [n] their weights in the table of parameters */
    int32_t n, n_added;
    int64_t total, max; /* elements of all of them, and of the largest */
    float *memory;      /* [total] values without noise, [most] with noise */
} lathe_noise;

typedef struct lathe_iteration {
    lathe_stage_state state;
    void *before; /* the state's memory as it was before this step, to go back to it */
    lathe_noise noise;
    lathe_prompt_row *prompts; /* [prompts_max] what prompts() returned last */
    int32_t prompts_max;
    int32_t reward_model; /* index among the rewards of the one that is run->reward */
} lathe_iteration;

#endif

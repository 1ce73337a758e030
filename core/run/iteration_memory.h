/* What the core keeps for a stage that makes its own batches (lathe_stage_v1.iterate): a part of a
 * run. */
#ifndef LATHE_RUN_ITERATION_MEMORY_H
#define LATHE_RUN_ITERATION_MEMORY_H

#include "checkpoint/stage_state.h"
#include "data/loader.h"

typedef struct lathe_iteration {
    lathe_stage_state state;
    lathe_prompt_row *prompts; /* [prompts_max] what prompts() returned last */
    int32_t prompts_max;
    int32_t reward_model; /* index among the rewards of the one that is run->reward */
} lathe_iteration;

#endif

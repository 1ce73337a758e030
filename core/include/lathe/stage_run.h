/* The functions of a run that a stage may call in iterate(): the primitives of the C API, prompts
 * of the data and rewards. Types and semantics of the primitives are those of lathe.h; stages that
 * take their batches from the data need none of this. */
#ifndef LATHE_STAGE_RUN_H
#define LATHE_STAGE_RUN_H

#include "lathe.h"

/** A prompt of the data; borrowed until the next call of prompts(). Plain data. */
typedef struct lathe_stage_prompt {
    const int32_t *tokens; /* [n_tokens] */
    int32_t n_tokens;
    int32_t reserved;   /* 0 */
    const char *record; /* the data's record as a JSON object, not NUL-terminated */
    int64_t record_bytes;
} lathe_stage_prompt;
LATHE_ABI_SIZE(lathe_stage_prompt, 32);

/** A completion to score; the pointers are borrowed for the call. Plain data. */
typedef struct lathe_stage_completion {
    const int32_t *prompt; /* [n_prompt] tokens */
    const int32_t *tokens; /* [n_tokens] the completion, with the token that ended it */
    int32_t n_prompt, n_tokens;
    const char *record; /* of its prompt */
    int64_t record_bytes;
} lathe_stage_completion;
LATHE_ABI_SIZE(lathe_stage_completion, 40);

/** Functions of the core for one call of iterate(), on the rank's thread. `run` is the pointer that
 *  iterate() was given. */
typedef struct lathe_run_api {
    uint32_t size;
    int32_t n_rows;     /* B: most rows of a batch, train.micro_batch_size */
    int32_t row_tokens; /* T: most tokens of a row, data.seq_len */
    int32_t reserved;   /* 0 */
    /** [step] Gives the next n prompts of the data, in their shuffled order, epoch after epoch. The
     *  position in the data is part of the run's state. */
    lathe_status (*prompts)(void *run, int32_t n, lathe_stage_prompt *out);
    /** [step] lathe_generate_many: continues n prompts, generate.batch of them at a time. Pass all
     * prompts in one call. If the run is to end, further prompts are not begun, and results are
     * missing: check stops() afterwards. */
    lathe_status (*generate)(void *run, const lathe_prompt *prompts, int32_t n,
                             const lathe_sampling *sampling, lathe_generation *out);
    /** [step] The weighted sum of the run's rewards (lathe/reward.h) for each of n completions:
     *  out[n]. It is "no score" (lathe_reward_is_no_score) where a reward gave none: the stage
     *  leaves such a completion out. Errors: LATHE_E_STATE: the stage's needs lack
     *  LATHE_NEEDS_REWARD. LATHE_E_INTERRUPTED: the run is to end; iterate() returns this code,
     *  before it has accumulated anything, and is called again when the run resumes. */
    lathe_status (*reward)(void *run, const lathe_stage_completion *completions, int32_t n,
                           double *out);
    /** [step] Log-probabilities of a batch's targets under the policy, computed as training does:
     * those that loss() will see before the next update, up to rounding. As lathe_logprobs. */
    lathe_status (*logprobs)(void *run, const lathe_run_batch *batch, float *out);
    /** [step] lathe_forward for training, and lathe_backward: adds the gradients of a batch to the
     * step's. The core divides them by the step's count, clips and updates after iterate(). */
    lathe_status (*accumulate)(void *run, const lathe_run_batch *batch);
    /** [step] Shows `value` with this step's metrics, as the figure of this index of the stage's
     * table. */
    void (*figure)(void *run, int32_t index, double value);
    /** [step] A random number that depends only on the run's seed, the number of steps that the run
     * has made, and `index`. */
    uint64_t (*random)(void *run, uint64_t index);
    /** [step] 1: the run is to end, and iterate() may return LATHE_OK without having accumulated
     * anything; it is called again, with the same state and prompts, when the run resumes. */
    int32_t (*stops)(void *run);
    /** [step] Evaluates a batch with the policy (and the other models) as they are now, and writes
     *  output i of loss() to out[i], f32[n_rows*row_tokens] of the batch. Inputs of the stage that
     *  the batch lacks are 0. Outputs that are LATHE_NONE are not written; out[i] may be NULL: not
     *  wanted. Up to rounding they are what loss() sees before the next update. */
    lathe_status (*outputs)(void *run, const lathe_run_batch *batch, float *const *out);
} lathe_run_api;
LATHE_ABI_SIZE(lathe_run_api, 88);

#endif

/* The interface of reward plugins, which give each completion of a rollout a number.
 *
 * A stage that generates text (ppo) asks the run's rewards for the scores of a batch of
 * completions. A run may have several rewards; the core adds their scores, each times its weight. A
 * reward may be slow: the core calls score() on a thread of its own and waits up to
 * reward.timeout_seconds.
 */
#ifndef LATHE_REWARD_H
#define LATHE_REWARD_H

#include <string.h>

#include "host.h"

#define LATHE_REWARD_REVISION 1

/** Writes "no score" for a completion, which the stage then leaves out: a judge has no opinion, or
 * a service did not answer. A NaN that no computation gives stands for it. */
static inline void lathe_reward_no_score(double *out)
{
    const uint64_t bits = UINT64_C(0x7ff86e6f73636f72);
    memcpy(out, &bits, sizeof bits);
}

/** Whether `score` is "no score". */
static inline int lathe_reward_is_no_score(const double *score)
{
    uint64_t bits;
    memcpy(&bits, score, sizeof bits);
    return bits == UINT64_C(0x7ff86e6f73636f72);
}

/** A completion to score. Texts are UTF-8 and end with a NUL that the sizes do not count; a
 *  completion may be empty, and it may contain NULs. Plain data. */
typedef struct lathe_reward_item {
    uint32_t size;         /* sizeof(lathe_reward_item) */
    int32_t n_tokens;      /* length of tokens */
    const int32_t *tokens; /* the completion, with the token that ended it; NULL if n_tokens is 0 */
    const char *prompt;    /* the text that was completed */
    const char *completion;
    int64_t prompt_bytes, completion_bytes;
    const char
        *record; /* the record of the data as a JSON object, with all its columns; "{}": none */
    int64_t record_bytes;
} lathe_reward_item;
LATHE_ABI_SIZE(lathe_reward_item, 64);

typedef struct lathe_reward_v1 {
    uint32_t size;
    uint32_t revision;
    /** [any] Writes the score of items[i] to out[i], in the order of i, so that the core can say at
     * which item a reward was when its time was over. Every score must be finite, or "no score"
     * (lathe_reward_no_score). The same items must give the same scores, in a batch of any size, or
     *  a resumed run differs from one that was never interrupted. Called on one thread of the core
     *  that is not the rank's; it may allocate, block and do input and output. host->parallel_for
     *  runs serially on it.
     *  Errors: any code, recorded with host->fail. The core tries the batch again with another
     *  instance, reward.retries times; then the run ends with this message. */
    lathe_status (*score)(void *self, const lathe_reward_item *items, int32_t n, double *out);
    /** [any] The time of the score() that runs now is over, or the run is asked to end: it should
     *  return an error within seconds. Called from the rank's thread during score(). No call of
     * score() follows. NULL: the core waits no longer, and never frees the instance. */
    void (*cancel)(void *self);
    /** [any] Whether score() can use a record of the data: record[0, bytes), as in an item. The
     *  core asks for the records that it reads to validate a run, and for all of them before the
     *  first completion is generated, so that a missing column is no error in the middle of a
     *  run. A record that it accepts must never be the reason for an error of score(). Called from
     *  the rank's thread, never during score(). NULL: score() can use every record.
     *  Errors: LATHE_E_CONFIG and a message that says what the record lacks, to which the core adds
     *  its place and its columns; any other code. */
    lathe_status (*check_record)(void *self, const char *record, int64_t bytes);
} lathe_reward_v1;
LATHE_ABI_SIZE(lathe_reward_v1, 32);

#endif

/* The rewards of a run: their scores for a batch of completions, and the weighted sum.
 *
 * Threads: called from the rank's thread, one call at a time. Plugins score at the same time, each
 * on a thread of its own.
 */
#ifndef LATHE_REWARD_REWARDS_H
#define LATHE_REWARD_REWARDS_H

#include "lathe/reward.h"
#include "plug/plugin_instance.h"
#include "reward/score_thread.h"

/** A reward. */
typedef struct lathe_reward_part {
    const char *label; /* its name in messages and metrics; borrowed */
    double weight;
    double timeout_seconds; /* for one call of the plugin's score() */
    int32_t retries;        /* how often a batch that failed is tried again */
    int32_t reserved;
    /* Another instance is made of them for each of these tries; NULL if there are none. */
    const lathe_component *component;
    const lathe_value *values;
    /* The plugin; borrowed. Set to zeros when the rewards are destroyed if its score() never
     * returned. NULL: `score` */
    lathe_instance *instance;
    /* Scores on the calling thread, without a deadline: a reward model of the core. */
    lathe_status (*score)(void *arg, const lathe_reward_item *items, int32_t n, double *out);
    void *arg;
} lathe_reward_part;

typedef struct lathe_rewards lathe_rewards;

/** parts: [n], n >= 1, copied. LATHE_E_NOMEM. */
lathe_status lathe_rewards_create(const lathe_reward_part *parts, int32_t n, lathe_rewards **out);
/** Ends the threads. Call it before the instances are freed. NULL is fine. */
void lathe_rewards_destroy(lathe_rewards *rewards);

int32_t lathe_rewards_count(const lathe_rewards *rewards);
const char *lathe_rewards_label(const lathe_rewards *rewards, int32_t index);

/** Gives a reward without an instance its function, which runs on the calling thread and has no
 *  deadline. */
void lathe_rewards_set_model(lathe_rewards *rewards, int32_t index,
                             lathe_status (*score)(void *arg, const lathe_reward_item *items,
                                                   int32_t n, double *out),
                             void *arg);

/** out[i] = the sum over all rewards of weight * score of items[i], or "no score" if a reward gave
 *  none (lathe_reward_no_score): without it the sum could not be compared with others. The items
 * are borrowed until it returns. A reward that fails is tried again with the whole batch, after a
 * pause of 1 s, 2 s, 4 s, ..., at most 30 s.
 *
 *  Errors name the reward, the completion and its record: LATHE_E_PLUGIN: a reward gave no score in
 *  time, or wrote none; LATHE_E_NUMERIC: a score is not finite; any code of a plugin,
 *  except that those of wrong input become LATHE_E_PLUGIN.
 *  LATHE_E_INTERRUPTED: `stop` asked to end. No call may follow an error. */
lathe_status lathe_rewards_score(lathe_rewards *rewards, const lathe_reward_item *items, int32_t n,
                                 lathe_reward_stop stop, double *out);

/** Asks the rewards whether they can use a record of the data, JSON. *out_index: the reward that
 *  cannot. The message is the plugin's, with the reward before it and the record's columns after
 *  it: 'reward "match": the record has no column "answer"; the record has: prompt, solution'. */
lathe_status lathe_rewards_check_record(const lathe_rewards *rewards, const char *record,
                                        int64_t bytes, int32_t *out_index);

/** The scores of one reward in the last call, without its weight: [n], until the next call. */
const double *lathe_rewards_scores(const lathe_rewards *rewards, int32_t index);

#endif

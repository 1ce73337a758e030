/* A scorer: a thread that calls score() of one reward plugin, so that the caller can stop waiting.
 *
 * Threads: all functions are called from the rank's thread.
 */
#ifndef LATHE_REWARD_SCORE_THREAD_H
#define LATHE_REWARD_SCORE_THREAD_H

#include "lathe/reward.h"
#include "plug/plugin_instance.h"

typedef struct lathe__scorer lathe__scorer;

/** Whether to stop waiting, because the run is asked to end. NULL members: never. */
typedef struct lathe_reward_stop {
    int32_t (*stops)(void *arg); /* on the rank's thread */
    void *arg;
} lathe_reward_stop;

/** How a batch ended. */
typedef struct lathe__scores {
    lathe_status status; /* of score() */
    int32_t is_late;     /* 1: the time is over; the status has no meaning */
    int32_t is_stopped;  /* 1: the run is asked to end; likewise */
    const char *message; /* recorded by the plugin; "": none. Until the next batch */
    const double *out;   /* [n] the scores; lathe__score_is_set tells which were written */
} lathe__scores;

/** The instance is borrowed. The thread starts with the first batch. LATHE_E_NOMEM. */
lathe_status lathe__scorer_create(lathe_instance *instance, lathe__scorer **out);

/** Ends the thread. If score() never returned, the scorer stays allocated, and *instance is set to
 *  zeros, so that nobody frees what the plugin still uses. NULL is fine. */
void lathe__scorer_destroy(lathe__scorer *scorer);

/** Copies the batch and begins to score it. LATHE_E_NOMEM; LATHE_E_STATE: a batch never ended. */
lathe_status lathe__scorer_begin(lathe__scorer *scorer, const lathe_reward_item *items, int32_t n);

/** Waits until the batch has been scored, or until `seconds` after its beginning, or until the run
 *  is asked to end. In the last two cases it calls cancel() and waits a few more seconds for
 * score() to return. */
void lathe__scorer_wait(lathe__scorer *scorer, double seconds, lathe_reward_stop stop,
                        lathe__scores *out);

/** Marks a score as not written, and tells whether it has been written since. */
void lathe__score_clear(double *score);
int lathe__score_is_set(const double *score);

#endif

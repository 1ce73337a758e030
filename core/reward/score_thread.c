/* The thread that calls score() of a reward plugin. */
#include "reward/score_thread.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/parallel.h"

/* A NaN that no computation gives marks a score that has not been written. */
#define UNSET UINT64_C(0x7ff8dead5c04e000)

enum { IDLE, WORKING, DONE, STOPPING };

/* Time for score() to return after cancel(). */
#define GRACE_SECONDS 5

/* How often to look whether the run is asked to end. */
#define LOOK_SECONDS 0.05

struct lathe__scorer {
    lathe_instance *instance;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* on the monotonic clock */
    int32_t state;          /* IDLE, ...; under the lock */
    int32_t has_thread, is_abandoned;
    struct timespec begun;
    /* The batch, owned, because the plugin may read it after the caller has stopped waiting. */
    lathe_reward_item *items; /* [n], and the texts and tokens after them */
    double *out;              /* [n] */
    double *seen;             /* [n] the scores when the caller stopped waiting for ever */
    int32_t n;
    lathe_status status;
    char message[1024];
};

void lathe__score_clear(double *score)
{
    const uint64_t unset = UNSET;
    memcpy(score, &unset, sizeof unset);
}

int lathe__score_is_set(const double *score)
{
    uint64_t bits;
    memcpy(&bits, score, sizeof bits);
    return bits != UNSET;
}

lathe_status lathe__scorer_create(lathe_instance *instance, lathe__scorer **out)
{
    pthread_condattr_t clock;
    lathe__scorer *s = calloc(1, sizeof *s);
    *out = s;
    if (s == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: a reward's thread");
    s->instance = instance;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->changed, &clock);
    (void)pthread_condattr_destroy(&clock);
    return LATHE_OK;
}

static void run_batch(lathe__scorer *s)
{
    const lathe_reward_v1 *table = s->instance->table;
    void *const self = s->instance->self;
    lathe_error_clear();
    s->status = table->score(self, s->items, s->n, s->out);
    (void)snprintf(s->message, sizeof s->message, "%s",
                   s->status != LATHE_OK ? lathe_error_message() : "");
}

static void *work(void *arg)
{
    lathe__scorer *s = arg;
    lathe_parallel_stay_alone();
    (void)pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->state != WORKING && s->state != STOPPING)
            (void)pthread_cond_wait(&s->changed, &s->lock);
        if (s->state == STOPPING)
            break;
        (void)pthread_mutex_unlock(&s->lock);
        run_batch(s);
        (void)pthread_mutex_lock(&s->lock);
        s->state = DONE;
        (void)pthread_cond_broadcast(&s->changed);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Signals are handled on the rank's thread, so this one blocks them. */
static lathe_status start_thread(lathe__scorer *s)
{
    sigset_t all, before;
    if (s->has_thread)
        return LATHE_OK;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&s->thread, NULL, work, s);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0)
        return lathe_error(LATHE_E_NOMEM, "a reward's thread does not start: %s", strerror(failed));
    s->has_thread = 1;
    return LATHE_OK;
}

static void release(lathe__scorer *s)
{
    free(s->items);
    free(s->out);
    s->items = NULL;
    s->out = NULL;
}

void lathe__scorer_destroy(lathe__scorer *s)
{
    if (s == NULL)
        return;
    if (s->is_abandoned) {
        memset(s->instance, 0, sizeof *s->instance);
        return;
    }
    if (s->has_thread) {
        (void)pthread_mutex_lock(&s->lock);
        s->state = STOPPING;
        (void)pthread_cond_broadcast(&s->changed);
        (void)pthread_mutex_unlock(&s->lock);
        (void)pthread_join(s->thread, NULL);
    }
    release(s);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- the batch ---- */

/* Copies n bytes and a NUL to *at, which moves on; returns the copy. */
static const char *put(char **at, const char *text, int64_t n)
{
    char *const copy = *at;
    if (n > 0)
        memcpy(copy, text, (size_t)n);
    copy[n] = '\0';
    *at += n + 1;
    return copy;
}

/* The items are followed by all tokens, and these by the texts. */
static lathe_status copy_batch(lathe__scorer *s, const lathe_reward_item *items, int32_t n)
{
    size_t bytes = (size_t)n * sizeof *items, n_tokens = 0;
    for (int32_t i = 0; i < n; i++) {
        n_tokens += (size_t)items[i].n_tokens;
        bytes +=
            (size_t)(items[i].prompt_bytes + items[i].completion_bytes + items[i].record_bytes) + 3;
    }
    release(s);
    s->items = malloc(bytes + n_tokens * sizeof(int32_t));
    s->out = malloc((size_t)n * sizeof *s->out);
    if (s->items == NULL || s->out == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: %d completions to score", n);
    int32_t *tokens = (int32_t *)(void *)(s->items + n);
    char *at = (char *)(tokens + n_tokens);
    for (int32_t i = 0; i < n; i++) {
        lathe_reward_item *item = &s->items[i];
        *item = items[i];
        if (item->n_tokens > 0)
            memcpy(tokens, items[i].tokens, (size_t)item->n_tokens * sizeof *tokens);
        item->tokens = item->n_tokens > 0 ? tokens : NULL;
        tokens += item->n_tokens;
        item->prompt = put(&at, items[i].prompt, item->prompt_bytes);
        item->completion = put(&at, items[i].completion, item->completion_bytes);
        item->record = put(&at, items[i].record, item->record_bytes);
        lathe__score_clear(&s->out[i]);
    }
    s->n = n;
    return LATHE_OK;
}

lathe_status lathe__scorer_begin(lathe__scorer *s, const lathe_reward_item *items, int32_t n)
{
    if (s->is_abandoned)
        return lathe_error(LATHE_E_STATE, "it has not returned from an earlier batch");
    LATHE_TRY(copy_batch(s, items, n));
    LATHE_TRY(start_thread(s));
    (void)clock_gettime(CLOCK_MONOTONIC, &s->begun);
    (void)pthread_mutex_lock(&s->lock);
    s->state = WORKING;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    return LATHE_OK;
}

/* ---- waiting ---- */

static struct timespec later(struct timespec t, double seconds)
{
    const double whole = floor(seconds);
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)((seconds - whole) * 1e9);
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

/* Waits for score() to return; 0: it has not returned at the given time. */
static int returned(lathe__scorer *s, const struct timespec *until)
{
    int error = 0;
    (void)pthread_mutex_lock(&s->lock);
    while (s->state == WORKING && error == 0)
        error = pthread_cond_timedwait(&s->changed, &s->lock, until);
    const int is_done = s->state == DONE;
    (void)pthread_mutex_unlock(&s->lock);
    return is_done;
}

/* Copies the scores so far of a score() that still runs; it may be writing them. */
__attribute__((no_sanitize("thread"))) static void snapshot(const double *from, int32_t n,
                                                            double *to)
{
    for (int32_t i = 0; i < n; i++) {
        uint64_t bits;
        __atomic_load((const uint64_t *)(const void *)&from[i], &bits, __ATOMIC_RELAXED);
        memcpy(&to[i], &bits, sizeof bits);
    }
}

static int is_before(struct timespec a, struct timespec b)
{
    return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

static struct timespec now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t;
}

/* Waits for score() to return, in parts, between which the run may be asked to end. */
static void wait_in_parts(lathe__scorer *s, struct timespec until, lathe_reward_stop stop,
                          lathe__scores *out)
{
    for (;;) {
        struct timespec part = later(now(), LOOK_SECONDS);
        if (is_before(until, part))
            part = until;
        if (returned(s, &part))
            return;
        out->is_stopped = stop.stops != NULL && stop.stops(stop.arg);
        out->is_late = !out->is_stopped && !is_before(now(), until);
        if (out->is_stopped || out->is_late)
            return;
    }
}

void lathe__scorer_wait(lathe__scorer *s, double seconds, lathe_reward_stop stop,
                        lathe__scores *out)
{
    const lathe_reward_v1 *table = s->instance->table;
    *out = (lathe__scores){.message = ""};
    wait_in_parts(s, later(s->begun, seconds), stop, out);
    if (out->is_late || out->is_stopped) {
        const struct timespec last = later(now(), GRACE_SECONDS);
        if (LATHE_HAS(table, cancel))
            table->cancel(s->instance->self);
        s->is_abandoned = !LATHE_HAS(table, cancel) || !returned(s, &last);
    }
    if (s->is_abandoned) {
        s->seen = malloc((size_t)s->n * sizeof *s->seen); /* as lasting as the batch */
        if (s->seen != NULL)
            snapshot(s->out, s->n, s->seen);
        out->out = s->seen != NULL ? s->seen : s->out;
        return;
    }
    out->status = s->status;
    out->message = s->message;
    out->out = s->out;
}

/* A thread that ends the process if the ranks do not meet in time: MPI_Init has no deadline and
 * cannot be interrupted, so the calling thread cannot end it. */
#include "parallel/ranks/join_watch.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/print.h"

/* Times are of the monotonic clock: setting the host's time must not end a run. */
struct lathe_join_watch {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ended;
    double seconds;
    const char *engine;
};

static void *watch_thread(void *arg)
{
    lathe_join_watch *const w = arg;
    struct timespec until;
    int status = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    const double seconds = floor(w->seconds);
    until.tv_sec += (time_t)seconds + 1; /* the engine's own deadline comes first */
    until.tv_nsec = (long)fmin(999999999.0, (double)until.tv_nsec + 1e9 * (w->seconds - seconds));
    (void)pthread_mutex_lock(&w->lock);
    while (!w->ended && status != ETIMEDOUT)
        status = pthread_cond_timedwait(&w->changed, &w->lock, &until);
    if (!w->ended) {
        lathe_print_to(stderr,
                       "lathe: collective \"%s\": the ranks did not meet within %g s "
                       "(parallel.deadline_seconds): one of them hangs, is stopped, or was not "
                       "started\n",
                       w->engine, w->seconds);
        _exit(1); /* not exit(), whose handlers may wait for the other ranks */
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

lathe_join_watch *lathe_join_watch_begin(const char *engine, double seconds)
{
    pthread_condattr_t attributes;
    lathe_join_watch *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    w->seconds = seconds;
    w->engine = engine;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (pthread_create(&w->thread, NULL, watch_thread, w) == 0)
        return w;
    /* without a thread the ranks still meet, only nothing ends a wait that has no end */
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
    return NULL;
}

void lathe_join_watch_end(lathe_join_watch *w)
{
    if (w == NULL)
        return;
    (void)pthread_mutex_lock(&w->lock);
    w->ended = 1;
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
    (void)pthread_join(w->thread, NULL);
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
}

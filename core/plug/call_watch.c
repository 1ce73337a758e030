/* Watches calls of plugins that must return soon. */
#include "plug/call_watch.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

typedef struct call {
    const char *path, *function; /* path NULL: no call */
    struct timespec begun;
} call;

enum { MAX_CALLS = 16 };

static lathe_call_handler handler;
static double limit_seconds;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static call calls[MAX_CALLS]; /* guarded by the lock */
static int is_started;
static _Thread_local int mine = -1; /* the call of this thread */

void lathe_call_watch(lathe_call_handler function, double seconds)
{
    limit_seconds = seconds;
    handler = function;
}

static double seconds_since(const struct timespec *begun)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begun->tv_sec) + 1e-9 * (double)(now.tv_nsec - begun->tv_nsec);
}

/* Whether there is a call; tells the handler of one that is late. Called with the lock held. */
static int look(void)
{
    int n = 0;
    for (int i = 0; i < MAX_CALLS; i++) {
        call *c = &calls[i];
        if (c->path == NULL)
            continue;
        n++;
        if (seconds_since(&c->begun) >= limit_seconds) {
            handler(c->path, c->function, limit_seconds);
            (void)clock_gettime(CLOCK_MONOTONIC, &c->begun); /* the handler may let it go on */
        }
    }
    return n;
}

static void *watch(void *arg)
{
    const struct timespec second = {1, 0};
    (void)pthread_mutex_lock(&lock);
    for (;;) {
        while (look() == 0)
            (void)pthread_cond_wait(&changed, &lock);
        (void)pthread_mutex_unlock(&lock);
        (void)nanosleep(&second, NULL);
        (void)pthread_mutex_lock(&lock);
    }
    return arg;
}

static void start(void)
{
    pthread_t thread;
    sigset_t all, before;
    is_started = 1;
    /* A signal that another thread blocks, to take it when it is ready, must not find this one. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, watch, NULL) == 0)
        (void)pthread_detach(thread);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void lathe_call_begin(const char *path, const char *function)
{
    if (handler == NULL || path == NULL)
        return;
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_CALLS && mine < 0; i++)
        if (calls[i].path == NULL)
            mine = i;
    if (mine >= 0) {
        calls[mine].path = path;
        calls[mine].function = function;
        (void)clock_gettime(CLOCK_MONOTONIC, &calls[mine].begun);
        if (!is_started)
            start();
        (void)pthread_cond_signal(&changed);
    }
    (void)pthread_mutex_unlock(&lock);
}

void lathe_call_end(void)
{
    if (mine < 0)
        return;
    (void)pthread_mutex_lock(&lock);
    calls[mine].path = NULL;
    (void)pthread_mutex_unlock(&lock);
    mine = -1;
}

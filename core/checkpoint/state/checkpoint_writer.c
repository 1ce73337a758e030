/* Writes checkpoints in a thread. */
#include "checkpoint/state/checkpoint_writer.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/trace.h"
#include "checkpoint/state/checkpoint.h"

/* Tasks of the thread. */
enum {
    TOUCH, /* write to every page of the image once, so that the first copy has no page faults */
    WRITE, /* write a checkpoint */
    IDLE,  /* wait */
    STOP   /* end */
};

/* Niceness of the thread: training steps have priority, but the thread still gets a share of a busy
 * machine. */
enum { NICE = 10 };

struct lathe_writer {
    lathe_image *image;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int32_t todo; /* guarded by the mutex, like all fields below */
    lathe_figures figures;
    int32_t gate; /* of lathe_checkpoint_write: read the files back before the rename */
    lathe_status status;
    char message[1024];
    char path[PATH_MAX]; /* path of the newest complete checkpoint; "": none */
    char next[PATH_MAX];
};

static lathe_status work(lathe_writer *w, int32_t todo)
{
    if (todo == TOUCH)
        lathe_image_touch(w->image);
    if (todo != WRITE)
        return LATHE_OK;
    return lathe_checkpoint_write(lathe_image_state(w->image), &w->figures, w->gate, w->next,
                                  (int64_t)sizeof w->next);
}

static void done(lathe_writer *w, int32_t todo, lathe_status status)
{
    if (status != LATHE_OK && w->status == LATHE_OK) {
        w->status = status;
        (void)snprintf(w->message, sizeof w->message, "%s", lathe_error_message());
    }
    if (todo == WRITE && w->next[0]) /* whole, even if the pointer to it could not be written */
        (void)snprintf(w->path, sizeof w->path, "%s", w->next);
    if (w->todo == todo)
        w->todo = IDLE;
    (void)pthread_cond_broadcast(&w->changed);
}

static void *main_of_writer(void *arg)
{
    lathe_writer *w = arg;
    lathe_parallel_stay_alone(); /* its loops do not use the threads of the training */
    lathe_trace_thread("checkpoint writer");
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE); /* of this thread only */
    (void)pthread_mutex_lock(&w->mutex);
    while (w->todo != STOP) {
        const int32_t todo = w->todo;
        if (todo == IDLE) {
            (void)pthread_cond_wait(&w->changed, &w->mutex);
            continue;
        }
        (void)pthread_mutex_unlock(&w->mutex);
        const lathe_status status = work(w, todo);
        (void)pthread_mutex_lock(&w->mutex);
        done(w, todo, status);
    }
    (void)pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Starts the thread with all signals blocked: the other threads handle them. */
static int start(lathe_writer *w)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&w->thread, NULL, main_of_writer, w);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

lathe_status lathe_writer_create(lathe_image *image, lathe_writer **out)
{
    *out = NULL;
    lathe_writer *w = calloc(1, sizeof *w);
    if (w == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the writer of checkpoints");
    w->image = image;
    w->todo = TOUCH;
    (void)pthread_mutex_init(&w->mutex, NULL);
    (void)pthread_cond_init(&w->changed, NULL);
    if (start(w) != 0) {
        (void)pthread_cond_destroy(&w->changed);
        (void)pthread_mutex_destroy(&w->mutex);
        free(w);
        return lathe_error(LATHE_E_NOMEM, "no thread for the writer of checkpoints");
    }
    *out = w;
    return LATHE_OK;
}

void lathe_writer_post(lathe_writer *w, const lathe_figures *figures, int32_t gate)
{
    (void)pthread_mutex_lock(&w->mutex);
    w->figures = *figures;
    w->gate = gate;
    w->todo = WRITE;
    (void)pthread_cond_broadcast(&w->changed);
    (void)pthread_mutex_unlock(&w->mutex);
}

int32_t lathe_writer_busy(lathe_writer *w)
{
    (void)pthread_mutex_lock(&w->mutex);
    const int32_t busy = w->todo != IDLE;
    (void)pthread_mutex_unlock(&w->mutex);
    return busy;
}

lathe_status lathe_writer_wait(lathe_writer *w, const char **out_path)
{
    (void)pthread_mutex_lock(&w->mutex);
    while (w->todo != IDLE)
        (void)pthread_cond_wait(&w->changed, &w->mutex);
    const lathe_status status = w->status;
    w->status = LATHE_OK;
    if (out_path)
        *out_path = w->path[0] ? w->path : NULL;
    (void)pthread_mutex_unlock(&w->mutex);
    return status == LATHE_OK ? LATHE_OK : lathe_error(status, "%s", w->message);
}

void lathe_writer_destroy(lathe_writer *w)
{
    if (w == NULL)
        return;
    if (lathe_writer_wait(w, NULL) != LATHE_OK)
        lathe_log(LATHE_LOG_WARN, "a checkpoint was not written: %s", lathe_error_message());
    (void)pthread_mutex_lock(&w->mutex);
    w->todo = STOP;
    (void)pthread_cond_broadcast(&w->changed);
    (void)pthread_mutex_unlock(&w->mutex);
    (void)pthread_join(w->thread, NULL);
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->mutex);
    free(w);
}

/* Somebody who watches a long piece of work: hears how far it is, and may end it. */
#ifndef LATHE_BASE_WORK_WATCH_H
#define LATHE_BASE_WORK_WATCH_H

#include "lathe/status.h"

/** Called between two parts of the work, never inside one. Empty when all zeros. */
typedef struct lathe_work_watch {
    /* n_done of n_all parts are done; their unit is the work's own (weights, batches, bytes). A
     * status other than LATHE_OK, for which an error is set, ends the work: it removes what is
     * incomplete and returns that status. NULL: nobody watches. */
    lathe_status (*tell)(void *arg, int64_t n_done, int64_t n_all);
    void *arg;
} lathe_work_watch;

/** Tells the watcher; watch may be NULL. */
static inline lathe_status lathe_work_tell(const lathe_work_watch *watch, int64_t n_done,
                                           int64_t n_all)
{
    return watch != NULL && watch->tell != NULL ? watch->tell(watch->arg, n_done, n_all) : LATHE_OK;
}

#endif

/* Runs work in a child process, because it may crash, hang or end the process. Returns the
 * child's output and how the child ended. */
#ifndef LATHE_BASE_CHILD_H
#define LATHE_BASE_CHILD_H

#include "base/buffer.h"

/* How a child ended. */
enum {
    LATHE_CHILD_DONE = 0,   /* its function returned */
    LATHE_CHILD_EXITED = 1, /* the child process ended by exit(); number: the exit status */
    LATHE_CHILD_KILLED = 2, /* number: the signal */
    LATHE_CHILD_HUNG = 3    /* it wrote nothing for too long and was stopped */
};

typedef struct lathe_child_end {
    int32_t how;    /* LATHE_CHILD_* */
    int32_t number; /* exit status or signal */
} lathe_child_end;

/** The work of a child. Writes its answer with lathe_child_write(fd, ...). */
typedef void (*lathe_child_fn)(void *arg, int fd);

/** Forks, runs work(arg, fd) in the child, appends the child's output to `out`, and waits for its
 *  end.
 *
 *  In the child, standard input, output and error are /dev/null, signals have their default action,
 *  no core is dumped, and exit handlers do not run after `work`. The child is killed if the parent
 *  ends, or if it has written nothing for `seconds`. `out` gets everything that the child wrote,
 *  however it ended. The parent sleeps while it waits.
 *
 *  Threads: no other thread of the process should load libraries during the call. Errors:
 *  LATHE_E_IO if no process or pipe can be made. */
lathe_status lathe_child_run(lathe_child_fn work, void *arg, double seconds, lathe_buffer *out,
                             lathe_child_end *end);

/** Writes bytes to the parent; for use in the child. Write errors are ignored. */
void lathe_child_write(int fd, const void *data, int64_t bytes);

/** "ends the process", "crashes (Segmentation fault)", "does not return within 5 s". */
void lathe_child_end_text(const lathe_child_end *end, double seconds, char *out, int64_t out_bytes);

#endif

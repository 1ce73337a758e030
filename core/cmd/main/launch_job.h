/* One start of a training on several processes, through mpirun. */
#ifndef LATHE_CMD_LAUNCH_JOB_H
#define LATHE_CMD_LAUNCH_JOB_H

#include <signal.h>

#include "base/arena.h"
#include "lathe/status.h"

/** How a job ended. */
typedef struct lathe_launch_end {
    int code;      /* exit code of the first process that failed, 128 + n for signal n; 0: none */
    int stopped;   /* number of the signal that the user sent; 0: none */
    char why[256]; /* what no rank can have said: one line; "": nothing */
} lathe_launch_end;

/** Finds mpirun in PATH, in arena. LATHE_E_NOT_FOUND says what to install. */
lathe_status lathe_launch_find(lathe_arena *arena, const char **out);

/** Blocks the signals that a job forwards, from now on: SIGINT, SIGTERM, SIGHUP. */
void lathe_launch_take_signals(sigset_t *out);

/** Runs `lathe train` on n_ranks processes and waits for their end.
 *
 *  mpirun   path of mpirun
 *  train    arguments of `lathe`, from "train" on, ended by NULL
 *
 *  The output of rank 0 is passed on; lines of other ranks get "rank 3: " in front. mpirun's own
 * words about the end of processes are left out (launch_output.h); out->why has what is not said
 * then. A signal of `taken` goes to every rank, which then writes a checkpoint; a second one of any
 * kind goes there too, and mpirun is ended if it is still there 5 s later. If this process dies,
 * mpirun ends the ranks. LATHE_E_IO: no process can be started. */
lathe_status lathe_launch_run(const char *mpirun, int32_t n_ranks, char *const *train,
                              const sigset_t *taken, lathe_launch_end *out);

#endif

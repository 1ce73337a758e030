/* Handles Ctrl-C, SIGTERM and SIGHUP while a training runs. */
#ifndef LATHE_CMD_STOP_SIGNALS_H
#define LATHE_CMD_STOP_SIGNALS_H

#include <signal.h>

#include "lathe/status.h"

/** State shared by the training and the thread that waits for signals. */
typedef struct lathe_cli_stop {
    volatile sig_atomic_t seen;  /* number of the first signal; 0: none */
    volatile sig_atomic_t steps; /* 1: steps are taken. Before that, ending at once loses nothing */
    /* Tells what the run does when another rank has ended (parallel/ranks/first_rank.h:
     * LATHE_SAVES_NEVER,
     * ...).
     */
    volatile sig_atomic_t saves;
    /* Stops the launcher, which would send SIGKILL soon, and lets it go on. NULL: it cannot be. */
    void (*hold)(int32_t holds);
    int32_t (*is_told)(int32_t sender); /* 1: another process has said why this one is ended, or
                                         * will, so that it ends at once and without a word; NULL:
                                         * none. sender: the process that sent the signal */
} lathe_cli_stop;

/** Starts a thread that takes SIGINT, SIGTERM and SIGHUP from now on. The first signal sets
 *  stop->seen to its number and prints a message; before the first step it ends the process at once
 *  with 128 + its number. A second SIGINT or SIGTERM always ends the process, except the same one
 *  within 0.25 s. SIGHUP stays ignored if it was (nohup). SIGPIPE is ignored. Call it before any
 *  thread is made: later threads inherit that the signals are blocked. LATHE_E_NOMEM: the thread
 *  could not be made.
 *
 *  A signal handler is not used, because it would run on the stack of whatever thread is
 *  interrupted. oneDNN 2.6's AVX2 products have no stack while they run (they use the stack pointer
 *  as one more register, which then points into the heap), and the frame of a handler overwrote the
 *  heap. */
lathe_status lathe_cli_take_stop_signals(lathe_cli_stop *stop);

#endif

/* Ctrl-C, SIGTERM and SIGHUP while a training runs. */
#ifndef LATHE_CLI_STOP_SIGNALS_H
#define LATHE_CLI_STOP_SIGNALS_H

#include <signal.h>

#include "lathe/status.h"

/** What the thread that waits for signals and the training tell each other. */
typedef struct lathe_cli_stop {
    volatile sig_atomic_t seen; /* number of the first signal; 0: none */
    volatile sig_atomic_t
        steps; /* 1: steps are taken; before them nothing is lost by ending at once */
} lathe_cli_stop;

/** From here on SIGINT, SIGTERM and SIGHUP are taken by a thread of their own: the first sets
 *  stop->seen to its number and says so, or, before the first step, ends the process at once with
 *  128 + its number; a second SIGINT or SIGTERM does so at any time, but for the same one within
 *  0.25 s. SIGHUP stays ignored where it was (nohup). SIGPIPE is ignored. Call it before any thread
 *  is made: those made later inherit that the signals are blocked.
 *
 *  A handler would run on the stack of whatever thread is interrupted, and oneDNN 2.6's AVX2
 *  products have no stack while they run (the stack pointer is one more register, in the midst of
 *  the heap): the handler's frame overwrote it. LATHE_E_NOMEM: there is no thread to be had. */
lathe_status lathe_cli_take_stop_signals(lathe_cli_stop *stop);

#endif

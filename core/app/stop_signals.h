/* Ctrl-C, SIGTERM and SIGHUP while a training runs. */
#ifndef LATHE_APP_STOP_SIGNALS_H
#define LATHE_APP_STOP_SIGNALS_H

#include <signal.h>

#include "lathe/status.h"

/** From here on SIGINT, SIGTERM and SIGHUP are taken by a thread of their own: the first sets *stop to its number
 *  and says so, a second SIGINT or SIGTERM ends the process at once with 128 + its number. SIGHUP stays ignored
 *  where it was (nohup). SIGPIPE is ignored. Call it before any thread is made: those made later inherit that
 *  the signals are blocked.
 *
 *  A handler would run on the stack of whatever thread is interrupted, and oneDNN 2.6's AVX2 products have no
 *  stack while they run (the stack pointer is one more register, in the midst of the heap): the handler's frame
 *  overwrote it. LATHE_E_NOMEM: there is no thread to be had. */
lathe_status lathe_app_take_stop_signals(volatile sig_atomic_t *stop);

#endif

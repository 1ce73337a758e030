/* Holds Ctrl-C, SIGTERM and SIGHUP back while a command writes a model, so that it can remove what
 * is incomplete before it ends. */
#ifndef LATHE_CMD_HELD_SIGNALS_H
#define LATHE_CMD_HELD_SIGNALS_H

#include "lathe/status.h"

/** From now on the signals stay pending. Call it before any thread is made: later threads inherit
 *  it. */
void lathe_cli_hold_signals(void);

/** Lets the signals end the process again; a pending one ends it in this call. */
void lathe_cli_release_signals(void);

/** Like lathe_cli_release_signals, at the end of a command. is_complete: all is written, so a
 *  pending signal is discarded. */
void lathe_cli_end_signals(int32_t is_complete);

/** Whether a signal is pending: then the work under way is to be ended. */
int32_t lathe_cli_is_signalled(void);

#endif

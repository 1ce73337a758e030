/* Names the plugin whose code ends the process by a signal, or never returns. */
#ifndef LATHE_CMD_PLUGIN_FAULTS_H
#define LATHE_CMD_PLUGIN_FAULTS_H

/** Installs handlers of SIGSEGV, SIGILL, SIGFPE and SIGABRT: a line on stderr names the plugin that
 *  is at work, or the one on the stack, and the process ends by the signal, as without a handler.
 *  A plugin's create(), or a reader's open() or column(), that has not returned for two minutes, or
 *  LATHE_PLUGIN_SECONDS of the environment, ends the process with code 1. */
void lathe_cli_name_faults(void);

/** Takes the handlers away again, in a process whose parent says how it ended. */
void lathe_cli_leave_faults(void);

/** The line alone, from another handler. Only functions that are safe in a handler are called. */
void lathe_cli_say_signal(int number);

#endif

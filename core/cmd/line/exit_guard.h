/* Reports a plugin, or a library that it uses, that ends the process by exit(). */
#ifndef LATHE_CMD_EXIT_GUARD_H
#define LATHE_CMD_EXIT_GUARD_H

/** Makes exit() and quick_exit() an error from now on: a line on stderr names the plugin found on
 *  the stack, and the process ends with code 1. Call it first in main(). */
void lathe_cli_guard_exit(void);

/** Call it when main() is about to return. */
void lathe_cli_unguard_exit(void);

#endif

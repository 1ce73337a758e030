/* A plugin, or a library that it uses, that ends the process does not pass for a command that is
 * done. */
#ifndef LATHE_APP_EXIT_GUARD_H
#define LATHE_APP_EXIT_GUARD_H

/** From now on exit() and quick_exit() are an error of whoever calls them: standard error gets one
 *  line that names the plugin found on the stack, and the process ends with 1. First thing in
 *  main(). */
void lathe_app_guard_exit(void);

/** main() is about to return. */
void lathe_app_unguard_exit(void);

#endif

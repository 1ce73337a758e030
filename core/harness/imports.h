/* Counts a plugin's calls of the C library that allocate memory or print, from any thread. Calls
 * made by other libraries and by the host's functions are not counted. */
#ifndef LATHE_HARNESS_IMPORTS_H
#define LATHE_HARNESS_IMPORTS_H

#include "lathe/plugin.h"

/** Counts the calls of the shared object that holds `plugin`, from now until the process ends. */
void lathe__imports_watch(const lathe_plugin *plugin);

/** Number of calls so far, by all watched plugins: of malloc and similar functions, mmap and fopen;
 *  of printf and similar functions; of pthread_create. */
int64_t lathe__imports_heap(void);
int64_t lathe__imports_prints(void);
int64_t lathe__imports_threads(void);

#endif

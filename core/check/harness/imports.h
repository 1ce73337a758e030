/* Counts a plugin's calls to functions of the C library that allocate memory, print, or create
 * threads, on any thread, by replacing addresses in the plugin's import table. Calls made by other
 * libraries and by the host's functions are not counted. What a watched plugin prints to standard
 * output and error is counted and discarded; other streams work as usual. */
#ifndef LATHE_CHECK_IMPORTS_H
#define LATHE_CHECK_IMPORTS_H

#include "lathe/plugin.h"

/** Starts counting the calls that the shared object of `plugin` makes, until the process ends. On
 *  processors other than x86-64 and AArch64 nothing is counted. */
void lathe__imports_watch(const lathe_plugin *plugin);

/** Number of calls so far, by all watched plugins, to malloc and similar functions, mmap and
 *  fopen. */
int64_t lathe__imports_heap(void);
/** Number of calls that write to standard output or error. */
int64_t lathe__imports_prints(void);
/** Number of calls to pthread_create. */
int64_t lathe__imports_threads(void);

#endif

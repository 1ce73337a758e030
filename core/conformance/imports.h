/* What a plugin calls of the C library: its calls that take memory or print are counted, whichever
 * thread makes them. Calls of other libraries, and of the host's functions, are not its own and are
 * not counted. */
#ifndef LATHE_CONFORMANCE_IMPORTS_H
#define LATHE_CONFORMANCE_IMPORTS_H

#include "lathe/plugin.h"

/** Counts the calls of the shared object that holds `plugin`, from now on and for good. */
void lathe__imports_watch(const lathe_plugin *plugin);

/** Calls so far, of all watched plugins: malloc and its like, mmap and fopen; printf and its like;
 *  pthread_create. */
int64_t lathe__imports_heap(void);
int64_t lathe__imports_prints(void);
int64_t lathe__imports_threads(void);

#endif

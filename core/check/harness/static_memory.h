/* The static memory of a plugin: the writable parts of its shared object (.data, .bss). */
#ifndef LATHE_CHECK_STATIC_MEMORY_H
#define LATHE_CHECK_STATIC_MEMORY_H

#include "lathe/plugin.h"

/** A copy of it. Empty when all zeros. */
typedef struct lathe__static_copy {
    unsigned char *bytes;
    int64_t n;
} lathe__static_copy;

/** Copies the static memory of the object that contains the plugin's constant; bytes NULL, n 0: it
 *  has none, or there is no memory for the copy. The caller frees it. */
void lathe__static_copy_take(const lathe_plugin *plugin, lathe__static_copy *out);
void lathe__static_copy_fini(lathe__static_copy *copy);

/** Place of the first byte in which two copies differ; -1: none. */
int64_t lathe__static_copy_differs(const lathe__static_copy *a, const lathe__static_copy *b);

#endif

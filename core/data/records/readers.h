/* The reader plugins of a run, and which of them reads a file. */
#ifndef LATHE_DATA_READERS_H
#define LATHE_DATA_READERS_H

#include "base/arena.h"
#include "plug/registry.h"

typedef struct lathe_readers {
    const lathe_component **list; /* [n], by name */
    int64_t n;
} lathe_readers;

/** Opens the reader plugins of a registry; NULL: there are none. A plugin that is refused gives a
 *  warning. The list is in the arena. LATHE_E_NOMEM. */
lathe_status lathe_readers_find(lathe_registry *registry, lathe_arena *arena, lathe_readers *out);

/** The reader of files with a name like this one; NULL: none. */
const lathe_component *lathe_readers_by_name(const lathe_readers *readers, const char *path);

/** The reader of files that begin with head[0, n), and the name of their format; NULL: none. */
const lathe_component *lathe_readers_by_bytes(const lathe_readers *readers, const char *head,
                                              int64_t n, const char **out_format);

#endif

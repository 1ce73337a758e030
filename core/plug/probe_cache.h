/* Remembers which plugin files were tried before, by SHA-256, in a small text file in the user's
 * cache folder.
 *
 *   $XDG_CACHE_HOME/lathe/plugins (or ~/.cache/lathe/plugins)
 *   lathe plugins 1 <version of Lathe>
 *   <sha256> <device> <inode> <bytes> <mtime ns> <ctime ns> <LATHE_CHILD_*> <unix time>
 *
 * If the five numbers after the hash match, the file is not read again: its content is the one that
 * was hashed. The cache only decides whether a file is tried in a child process first; it has no
 * code, no paths and nothing that is shown. A missing, damaged or busy cache, or one of another
 * version, costs a new trial and is never an error. Only files that loaded are remembered without
 * limit. A file that hung is remembered for an hour, because trying it costs seconds; crashes are
 * tried again each time.
 */
#ifndef LATHE_PLUG_PROBE_CACHE_H
#define LATHE_PLUG_PROBE_CACHE_H

#include <stdint.h>

#include "lathe/status.h"

typedef struct lathe_probe_entry {
    char hash[65];
    uint64_t device, inode;
    int64_t bytes, mtime_ns, ctime_ns;
    int64_t when; /* unix time of the trial */
    int32_t how;  /* LATHE_CHILD_* */
} lathe_probe_entry;

typedef struct lathe_probe_cache {
    lathe_probe_entry *entries;
    int64_t n;
    int32_t is_changed;
} lathe_probe_cache;

/** Reads the cache; empty if there is none, or if it cannot be read. LATHE_E_NOMEM: then the cache
 * need not be saved. */
lathe_status lathe_probe_cache_load(lathe_probe_cache *cache);

/** LATHE_CHILD_* of an earlier trial of this content, or -1. */
int32_t lathe_probe_cache_get(lathe_probe_cache *cache, const char *path);

/** Remembers the result of a trial. */
void lathe_probe_cache_put(lathe_probe_cache *cache, const char *path, int32_t how);

/** Writes the cache if it has changed, and frees it. */
void lathe_probe_cache_save(lathe_probe_cache *cache);

#endif

/* Tries out plugins in a child process before this process loads them. */
#ifndef LATHE_PLUG_PROBE_H
#define LATHE_PLUG_PROBE_H

#include "base/arena.h"
#include "lathe/status.h"

/** A file to try, and the result. */
typedef struct lathe_probe {
    const char *path; /* absolute */
    const char *name;
    const char *pin; /* SHA-256 that the file must have, or NULL */
    int32_t kind;
    /* out, in arena: one line that begins with the path and says why the file must not be loaded;
     * NULL: no fault was found */
    const char *fault;
} lathe_probe;

/** Loads each file in a child process and makes the calls that a listing makes: create() with the
 *  defaults of the schema if no key is required (not for devices, which would take memory),
 *  score(), destroy(). A file that crashes, ends the process or does not return within 5 s gets a
 *  fault. A file that a rule refuses gets none: opening it reports the reason.
 *
 *  Files that were tried before are not tried again: probe_cache.h. One child tries many files. If
 *  it dies, its last file is tried again alone, so that no file is blamed for another. Errors:
 *  LATHE_E_NOMEM; LATHE_E_IO: no process can be started. */
lathe_status lathe_probe_run(lathe_probe *files, int64_t n, lathe_arena *arena);

#endif

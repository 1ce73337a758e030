/* A lock file: one process at a time, gone with the process that held it. */
#ifndef LATHE_BASE_LOCK_H
#define LATHE_BASE_LOCK_H

#include "lathe/status.h"

typedef struct lathe_lock {
    int fd; /* -1: not held */
} lathe_lock;

#define LATHE_LOCK_INIT                                                                            \
    {                                                                                              \
        -1                                                                                         \
    }

/** Takes the lock and writes process, host and time (UTC) into the file, which stays for good.
 *
 *  The kernel lets go of it when the process ends, however it ends; so what a dead process left in
 *  the file is no obstacle. On NFS it holds between hosts only where the server locks (flock is
 *  carried as a byte-range lock); a file system without locks gives a warning and no protection.
 *
 *  Errors  LATHE_E_STATE: another holds it; the message says who. LATHE_E_IO: the file cannot be
 *  written.
 */
lathe_status lathe_lock_take(const char *path, lathe_lock *out);
/** LATHE_E_STATE: another process holds the lock; the message says who. A file that does not
 *  exist, or that cannot be read, is held by nobody. Nothing is written. */
lathe_status lathe_lock_check(const char *path);
void lathe_lock_release(lathe_lock *lock);

#endif

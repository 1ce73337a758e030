/* Lock files: only one process at a time holds a lock, and its end releases the lock. */
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

/** Takes the lock and writes process, host and time (UTC) into the file. The file is never deleted.
 *
 *  The kernel releases the lock when the process ends for any reason, so the file of a dead process
 *  does not block others. On NFS the lock works between hosts only if the server supports locks
 *  (flock becomes a byte-range lock). A file system without locks gives a warning and no
 *  protection.
 *
 *  Errors  LATHE_E_STATE: another process holds the lock; the message says which.
 *          LATHE_E_IO: the file cannot be written.
 */
lathe_status lathe_lock_take(const char *path, lathe_lock *out);
/** Tests the lock and writes nothing. LATHE_E_STATE: another process holds it; the message says
 *  which. A file that does not exist or cannot be read counts as not locked. */
lathe_status lathe_lock_check(const char *path);
void lathe_lock_release(lathe_lock *lock);

/** Takes the lock of a process that has ended without releasing it, which its line in the file
 *  tells; waits while a process holds it. Not held afterwards (out->fd -1) if there is no such
 *  file, its last holder has released it, or the file system has no locks. Writes this process into
 *  the file.
 *
 *  Errors  LATHE_E_IO: the file cannot be written. */
lathe_status lathe_lock_inherit(const char *path, lathe_lock *out);

/** Whether `path` is still the file that is locked: neither deleted, nor moved, nor replaced. A
 * lock that is not held counts as being there. */
int lathe_lock_is_there(const lathe_lock *lock, const char *path);

/** Takes the lock of a file that exists only while it is held, and waits for the process that holds
 *  it. For work whose result others find: look for the result before and after. A file system
 *  without locks gives no protection.
 *
 *  waiting  what to log before waiting, as in "DATASET: waiting for the process that prepares it"
 *  Errors   LATHE_E_IO: the file cannot be created. */
lathe_status lathe_lock_wait(const char *path, const char *waiting, lathe_lock *out);
/** Deletes the file of lathe_lock_wait, and releases the lock. */
void lathe_lock_delete(lathe_lock *lock, const char *path);

/** Locks a folder that several processes may write to, without a file in it.
 *
 *  Errors  LATHE_E_STATE: another process holds the lock. */
lathe_status lathe_lock_folder(const char *path, lathe_lock *out);

#endif

/* Unfinished files and folders of processes that have ended: NAME.tmp.PID, or NAME.tmp.PID.tmp.PID
 * for what is made of an unfinished one. */
#ifndef LATHE_BASE_STALE_H
#define LATHE_BASE_STALE_H

#include "lathe/status.h"

/** Removes every NAME.tmp.PID in the folder `dir` whose process no longer exists, or whose PID is
 *  that of this process, and logs it. name: only those of this NAME; NULL: of every name.
 *  LATHE_E_IO, LATHE_E_NOMEM. */
lathe_status lathe_stale_remove(const char *dir, const char *name);

/** Like lathe_stale_remove, for a caller that holds the lock without which no process writes them:
 *  removes them whatever their PID, which may belong to another process now. */
lathe_status lathe_stale_remove_locked(const char *dir, const char *name);

/** Removes those of the file or folder `path`, beside it. What cannot be removed stays, which does
 * no harm. */
void lathe_stale_clear(const char *path);

/** Whether the entry `file` of a folder is NAME.tmp.PID; name NULL: of any name. */
int lathe_stale_is_unfinished(const char *file, const char *name);

#endif

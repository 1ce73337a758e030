/* Unfinished files and folders of processes that have ended. */
#ifndef LATHE_BASE_STALE_H
#define LATHE_BASE_STALE_H

#include "lathe/status.h"

/** Removes every NAME.tmp.PID in the folder `dir` whose process no longer exists, or whose PID is
 *  that of this process, and logs it. name: only those of this NAME; NULL: of every name.
 *  LATHE_E_IO, LATHE_E_NOMEM. */
lathe_status lathe_stale_remove(const char *dir, const char *name);

/** Removes those of the file or folder `path`, beside it. What cannot be removed stays, which does
 * no harm. */
void lathe_stale_clear(const char *path);

#endif

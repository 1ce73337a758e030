/* A new folder, which gets its name when it is complete. */
#ifndef LATHE_BASE_NEW_FOLDER_H
#define LATHE_BASE_NEW_FOLDER_H

#include "base/arena.h"
#include "lathe/status.h"

/** The name under which the folder `path` is written: path.tmp.PID. Removes those of processes that
 *  have ended. NULL: out of memory. */
const char *lathe_new_folder_beside(lathe_arena *arena, const char *path);

/** Ends the writing of `beside`. If `status` is LATHE_OK, the folder is renamed to `path`, where
 *  nothing or an empty folder may be; otherwise it is removed, and the error stays as it is.
 *
 *  Errors  `status`; LATHE_E_CONFIG: `path` exists now; LATHE_E_IO. The folder is then removed. */
lathe_status lathe_new_folder_end(lathe_status status, const char *beside, const char *path);

#endif

/* The one way to make a folder: it is written beside its place, made durable, and renamed when it
 * is complete. A folder that has its name is therefore whole, however its writer ended.
 *
 *   LATHE_TRY(lathe_new_folder_begin(arena, path, &beside));
 *   status = fill(beside);
 *   return lathe_new_folder_end(status, beside, path);
 */
#ifndef LATHE_BASE_NEW_FOLDER_H
#define LATHE_BASE_NEW_FOLDER_H

#include "base/arena.h"
#include "lathe/status.h"

/** Whether a folder can be made at `path`: nothing may be there, or an empty folder.
 *
 *  Errors  LATHE_E_CONFIG: a file, a link or a folder with entries is there. */
lathe_status lathe_new_folder_check(const char *path);

/** Makes the empty folder path.tmp.PID, and the folders above it. Before that, removes those of
 *  processes that have ended.
 *
 *  Errors  LATHE_E_IO, LATHE_E_NOMEM. */
lathe_status lathe_new_folder_begin(lathe_arena *arena, const char *path, const char **out_beside);

/** Ends the writing of `beside`, whose files are synced. If `status` is LATHE_OK, the folders in it
 *  are synced and it is renamed to `path`, where nothing or an empty folder may be; otherwise it is
 *  removed, and the error stays as it is.
 *
 *  Errors  `status`; LATHE_E_CONFIG: `path` exists now; LATHE_E_IO. The folder is then removed. */
lathe_status lathe_new_folder_end(lathe_status status, const char *beside, const char *path);

/** Like lathe_new_folder_end, but a folder at `path` is replaced and removed. At every moment one
 *  of the two has the name, except on file systems that cannot exchange two names. */
lathe_status lathe_new_folder_replace(lathe_status status, const char *beside, const char *path);

#endif

/* Output files: one that a user named, as with -o FILE; one that is written piece by piece. */
#ifndef LATHE_BASE_OUTPUT_FILE_H
#define LATHE_BASE_OUTPUT_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lathe/status.h"

/** Writes a file that a user named. A symbolic link is followed, and its target is replaced
 *  atomically (lathe_file_write_atomic). A device or a pipe is written to directly and not
 * replaced; a folder is refused. Removes what ended processes left unfinished beside it. */
lathe_status lathe_file_write_output(const char *path, const void *data, int64_t bytes);

/** Ends a file whose first bytes were left empty: they say that the file is whole, so they are
 *  written last. Then syncs it, closes it and renames `temporary` to path. *file is NULL once it is
 *  closed, and temporary "" once the file has its name; the caller removes what has not. The folder
 *  is not synced. LATHE_E_IO. */
lathe_status lathe_file_finish(FILE **file, const void *first, size_t bytes, char *temporary,
                               const char *path);

#endif

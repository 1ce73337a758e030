/* A file that a user named, as with -o FILE. */
#ifndef LATHE_BASE_OUTPUT_FILE_H
#define LATHE_BASE_OUTPUT_FILE_H

#include <stdint.h>

#include "lathe/status.h"

/** Writes a file that a user named. A symbolic link is followed, and its target is replaced
 *  atomically (lathe_file_write_atomic). A device or a pipe is written to directly and not
 * replaced; a folder is refused. Removes what ended processes left unfinished beside it. */
lathe_status lathe_file_write_output(const char *path, const void *data, int64_t bytes);

#endif

/* Shared by fs.c and output_file.c. */
#ifndef LATHE_BASE_FS_INTERNAL_H
#define LATHE_BASE_FS_INTERNAL_H

#include <stdint.h>

#include "lathe/status.h"

/** Returns the error of `errno`, "PATH: cannot WHAT: ...": LATHE_E_NOT_FOUND or LATHE_E_IO. */
lathe_status lathe__io_error(const char *path, const char *what);

/** Writes all bytes, in several calls if signals interrupt or the file takes fewer at a time.
 *  path: for messages. */
lathe_status lathe__fd_write(int fd, const char *path, const char *data, int64_t bytes);

#endif

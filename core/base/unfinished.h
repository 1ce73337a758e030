/* Names of what a process has not finished: NAME.tmp.PID. */
#ifndef LATHE_BASE_UNFINISHED_H
#define LATHE_BASE_UNFINISHED_H

#include <limits.h>

#define LATHE_UNFINISHED_MARK ".tmp."

/** Reads one ".tmp.PID" at `at`. Returns what follows it; NULL: it is something else. */
const char *lathe_unfinished_mark(const char *at, long *out_pid);

/** A path for a message, in out[0, PATH_MAX): without the ".tmp.PID" that this process gives what
 * it has not finished, since a user knows the file by the name that it was to get. Returns out. */
const char *lathe_path_final(const char *path, char out[PATH_MAX]);

#endif

/* Reads and shows names of unfinished files and folders. */
#include "base/unfinished.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *lathe_unfinished_mark(const char *at, long *out_pid)
{
    char *end = NULL;
    if (strncmp(at, LATHE_UNFINISHED_MARK, strlen(LATHE_UNFINISHED_MARK)) != 0)
        return NULL;
    const char *digits = at + strlen(LATHE_UNFINISHED_MARK);
    if (*digits < '1' || *digits > '9')
        return NULL;
    *out_pid = strtol(digits, &end, 10);
    return *out_pid < INT_MAX ? end : NULL;
}

const char *lathe_path_final(const char *path, char out[PATH_MAX])
{
    size_t n = 0;
    while (*path && n + 1 < PATH_MAX) {
        long pid = 0;
        const char *after = lathe_unfinished_mark(path, &pid);
        if (after && pid == (long)getpid() && (*after == '\0' || *after == '/' || *after == '.'))
            path = after;
        else
            out[n++] = *path++;
    }
    out[n] = '\0';
    return out;
}

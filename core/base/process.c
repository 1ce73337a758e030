/* Reads /proc/PID/stat. */
#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads the file; returns where the field 2 ends, before the state, or NULL. text: [bytes] */
static const char *read_stat(int64_t pid, char *text, size_t bytes)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    const ssize_t n = read(fd, text, bytes - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strrchr(text, ')'); /* the name before it may hold anything */
    return at && strlen(at) > 2 ? at : NULL;
}

int64_t lathe_process_born(int64_t pid)
{
    char text[1024];
    const char *at = read_stat(pid, text, sizeof text);
    if (at == NULL || at[2] == 'Z' || at[2] == 'X')
        return 0;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoll(at, NULL, 10) : 0;
}

int32_t lathe_process_is_stopped(int64_t pid)
{
    char text[1024];
    const char *at = read_stat(pid, text, sizeof text);
    return at && (at[2] == 'T' || at[2] == 't');
}

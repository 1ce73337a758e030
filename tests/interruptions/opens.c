/* Preloaded into a command: writes each file that it opens to read, and each shared object that it
 * loads, as a line of the file that LATHE_TEST_OPENS names. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(const char *what, const char *path)
{
    static int (*open_file)(const char *, int, ...);
    const char *log = getenv("LATHE_TEST_OPENS");
    char line[4200];
    if (log == NULL || path == NULL)
        return;
    if (open_file == NULL)
        *(void **)&open_file = dlsym(RTLD_NEXT, "open");
    const int fd = open_file(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const int n = snprintf(line, sizeof line, "%s %s\n", what, path);
    if (fd >= 0 && n > 0 && n < (int)sizeof line && write(fd, line, (size_t)n) < 0)
        abort(); /* a line that is missing would let the test pass */
    if (fd >= 0)
        (void)close(fd);
}

/* A call that opened something. */
#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        static int (*real)(const char *, int, ...);                                                \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;                     \
        va_end(args);                                                                              \
        if (real == NULL)                                                                          \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                             \
        const int fd = real(path, flags, mode);                                                    \
        if (fd >= 0 && (flags & O_ACCMODE) == O_RDONLY)                                            \
            note("read", path);                                                                    \
        return fd;                                                                                 \
    }
OPEN(open)
OPEN(open64)

#define FOPEN(name)                                                                                \
    FILE *name(const char *path, const char *mode)                                                 \
    {                                                                                              \
        static FILE *(*real)(const char *, const char *);                                          \
        if (real == NULL)                                                                          \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                             \
        FILE *file = real(path, mode);                                                             \
        if (file != NULL && mode[0] == 'r')                                                        \
            note("read", path);                                                                    \
        return file;                                                                               \
    }
FOPEN(fopen)
FOPEN(fopen64)

void *dlopen(const char *path, int flags)
{
    static void *(*real)(const char *, int);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    note("load", path);
    return real(path, flags);
}

/* A library for LD_PRELOAD that counts the calls with which a command changes the disk, and
 * interrupts it at one of them. It works on the installed command, whose processes it need not
 * know; tests/support/inject.h does the same for functions that a test calls.
 *
 *   DISK_AT=N        at the Nth call ...
 *   DISK_HOW=kill    ... the process gets SIGKILL before the call
 *            term    ... it gets SIGTERM, and the call is made
 *            enospc  ... this call and all later writing ones fail: the disk is full
 *            eio     ... this call alone fails
 *   DISK_PATH=TEXT   counts only calls whose path has this text, or whose file was opened so
 *   DISK_CALL=NAME   counts only calls of this name; a full disk then fails the others, too
 *   DISK_LOG=FILE    gets a line per counted call: its number, its name, its path
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILES = 4096 };

static atomic_long n_calls;
static atomic_int is_full;                /* "enospc": the call was reached */
static atomic_char is_counted[MAX_FILES]; /* file descriptors opened for a counted path */

/* The next definition of a function: libc's. */
static void *next_of(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* dlsym() returns an object pointer, which POSIX lets one copy into a function pointer. */
#define NEXT(pointer, name)                                                                        \
    do {                                                                                           \
        void *found = next_of(name);                                                               \
        memcpy(&(pointer), &found, sizeof found);                                                  \
    } while (0)

static int is_wanted(const char *path)
{
    const char *part = getenv("DISK_PATH");
    return (part == NULL || strstr(path, part) != NULL) && strncmp(path, "/dev/", 5) != 0 &&
           strncmp(path, "/proc/", 6) != 0;
}

static void note(long call, const char *name, const char *path)
{
    const char *log = getenv("DISK_LOG");
    int (*next_open)(const char *, int, ...);
    ssize_t (*next_write)(int, const void *, size_t);
    char line[512];
    if (log == NULL)
        return;
    NEXT(next_open, "open");
    NEXT(next_write, "write");
    const int n = snprintf(line, sizeof line, "%ld %s %s\n", call, name, path);
    const int fd = next_open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) {
        (void)!next_write(fd, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
        (void)close(fd);
    }
}

/* Counts a call, and interrupts the process if it is the one. Returns 1 if the call must fail, with
 * errno set. frees: the call needs no room on the disk, so it succeeds on a full one. */
static int interrupts(const char *name, const char *path, int frees)
{
    const char *at = getenv("DISK_AT"), *how = getenv("DISK_HOW"), *only = getenv("DISK_CALL");
    const long wanted = at != NULL ? atol(at) : 0;
    const int is_counted_call = only == NULL || strcmp(only, name) == 0;
    const long call = is_counted_call ? atomic_fetch_add(&n_calls, 1) + 1 : 0;
    if (is_counted_call)
        note(call, name, path);
    if (wanted == 0 || how == NULL)
        return 0;
    if (strcmp(how, "enospc") == 0 && call >= wanted)
        atomic_store(&is_full, 1);
    if (atomic_load(&is_full)) {
        errno = ENOSPC;
        return !frees;
    }
    if (call != wanted)
        return 0;
    if (strcmp(how, "eio") == 0) {
        errno = EIO;
        return 1;
    }
    (void)kill(getpid(), strcmp(how, "term") == 0 ? SIGTERM : SIGKILL);
    while (strcmp(how, "kill") == 0)
        (void)pause(); /* SIGKILL ends all threads, though not before this call returns */
    return 0;
}

static int counts(int fd)
{
    return fd >= 0 && fd < MAX_FILES && is_counted[fd];
}

static int remember(int fd, const char *path, int flags)
{
    if (fd >= 0 && fd < MAX_FILES)
        is_counted[fd] = (flags & O_ACCMODE) != O_RDONLY && is_wanted(path);
    return fd;
}

/* ---- files ---- */

#define READ_MODE(flags)                                                                           \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                         \
        va_list list;                                                                              \
        va_start(list, flags);                                                                     \
        mode = va_arg(list, mode_t);                                                               \
        va_end(list);                                                                              \
    }

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...);                                                    \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        int (*next)(const char *, int, ...);                                                       \
        READ_MODE(flags)                                                                           \
        NEXT(next, #name);                                                                         \
        if ((flags & O_CREAT) && is_wanted(path) && interrupts("open", path, 0))                   \
            return -1;                                                                             \
        return remember(next(path, flags, mode), path, flags);                                     \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                               \
    int name(int dir, const char *path, int flags, ...);                                           \
    int name(int dir, const char *path, int flags, ...)                                            \
    {                                                                                              \
        int (*next)(int, const char *, int, ...);                                                  \
        READ_MODE(flags)                                                                           \
        NEXT(next, #name);                                                                         \
        if ((flags & O_CREAT) && is_wanted(path) && interrupts("openat", path, 0))                 \
            return -1;                                                                             \
        return remember(next(dir, path, flags, mode), path, flags);                                \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                                                \
    FILE *name(const char *path, const char *mode);                                                \
    FILE *name(const char *path, const char *mode)                                                 \
    {                                                                                              \
        FILE *(*next)(const char *, const char *);                                                 \
        NEXT(next, #name);                                                                         \
        const int writes = mode[0] != 'r' || strchr(mode, '+') != NULL;                            \
        if (writes && is_wanted(path) && interrupts("fopen", path, 0))                             \
            return NULL;                                                                           \
        FILE *file = next(path, mode);                                                             \
        if (file != NULL)                                                                          \
            (void)remember(fileno(file), path, writes ? O_WRONLY : O_RDONLY);                      \
        return file;                                                                               \
    }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int fd, const void *bytes, size_t n)
{
    ssize_t (*next)(int, const void *, size_t);
    NEXT(next, "write");
    return counts(fd) && interrupts("write", "", 0) ? -1 : next(fd, bytes, n);
}

#define PWRITE(name)                                                                               \
    ssize_t name(int fd, const void *bytes, size_t n, off_t at);                                   \
    ssize_t name(int fd, const void *bytes, size_t n, off_t at)                                    \
    {                                                                                              \
        ssize_t (*next)(int, const void *, size_t, off_t);                                         \
        NEXT(next, #name);                                                                         \
        return counts(fd) && interrupts("pwrite", "", 0) ? -1 : next(fd, bytes, n, at);            \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

/* stdio writes its buffer without calling write() by name, so a flush counts as the write. */
int fflush(FILE *file)
{
    int (*next)(FILE *);
    NEXT(next, "fflush");
    return file != NULL && counts(fileno(file)) && interrupts("fflush", "", 0) ? EOF : next(file);
}

int fclose(FILE *file)
{
    int (*next)(FILE *);
    NEXT(next, "fclose");
    const int failed = counts(fileno(file)) && interrupts("fclose", "", 0), error = errno;
    const int result = next(file);
    errno = failed ? error : errno;
    return failed ? EOF : result;
}

/* Whether the file or folder of a descriptor has a counted path. */
static int is_wanted_file(int fd)
{
    char link[64], path[4096];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return is_wanted(path);
}

#define SYNC(name)                                                                                 \
    int name(int fd)                                                                               \
    {                                                                                              \
        int (*next)(int);                                                                          \
        NEXT(next, #name);                                                                         \
        return is_wanted_file(fd) && interrupts(#name, "", 0) ? -1 : next(fd);                     \
    }
SYNC(fsync)
SYNC(fdatasync)

#define TRUNCATE(name)                                                                             \
    int name(int fd, off_t bytes);                                                                 \
    int name(int fd, off_t bytes)                                                                  \
    {                                                                                              \
        int (*next)(int, off_t);                                                                   \
        NEXT(next, #name);                                                                         \
        return counts(fd) && interrupts("ftruncate", "", bytes == 0) ? -1 : next(fd, bytes);       \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

/* ---- names ---- */

int rename(const char *from, const char *to)
{
    int (*next)(const char *, const char *);
    NEXT(next, "rename");
    return is_wanted(to) && interrupts("rename", to, 0) ? -1 : next(from, to);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    int (*next)(int, const char *, int, const char *);
    NEXT(next, "renameat");
    return is_wanted(to) && interrupts("renameat", to, 0) ? -1 : next(from_dir, from, to_dir, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    int (*next)(int, const char *, int, const char *, unsigned);
    NEXT(next, "renameat2");
    return is_wanted(to) && interrupts("renameat2", to, 0)
               ? -1
               : next(from_dir, from, to_dir, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    int (*next)(const char *, mode_t);
    NEXT(next, "mkdir");
    return is_wanted(path) && interrupts("mkdir", path, 0) ? -1 : next(path, mode);
}

int unlink(const char *path)
{
    int (*next)(const char *);
    NEXT(next, "unlink");
    return is_wanted(path) && interrupts("unlink", path, 1) ? -1 : next(path);
}

int unlinkat(int dir, const char *path, int flags)
{
    int (*next)(int, const char *, int);
    NEXT(next, "unlinkat");
    return interrupts("unlinkat", path, 1) ? -1 : next(dir, path, flags);
}

int rmdir(const char *path)
{
    int (*next)(const char *);
    NEXT(next, "rmdir");
    return is_wanted(path) && interrupts("rmdir", path, 1) ? -1 : next(path);
}

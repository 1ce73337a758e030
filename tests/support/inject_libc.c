/* The libc functions that failure injection replaces (see inject.h). */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/inject.h"
#include "support/inject_call.h"

#define FAILS(set, name) inject_call_fails(set, name, __builtin_return_address(0))

/* Set while dlsym runs on this thread: dlsym may free an old message or allocate a new one.
 * Volatile, because dlsym is declared as not calling back into this file. */
static _Thread_local volatile int resolving;

/* The function of libc, or of the sanitizer; NULL if called from within dlsym. */
static void *real(uintptr_t *slot, const char *name)
{
    uintptr_t at = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if (at == 0 && !resolving) {
        resolving = 1;
        at = (uintptr_t)dlsym(RTLD_NEXT, name);
        resolving = 0;
        if (at == 0)
            abort();
        __atomic_store_n(slot, at, __ATOMIC_RELAXED);
    }
    return (void *)at;
}

/* Memory for dlsym; never freed. */
static void *resolver_alloc(size_t bytes)
{
    static _Alignas(16) char memory[8192];
    static size_t used;
    const size_t rounded = (bytes + 15) / 16 * 16;
    if (rounded > sizeof memory - used)
        abort();
    used += rounded;
    return memory + used - rounded;
}

/* REAL(type of the function, name)(arguments) */
#define REAL(type, name)                                                                           \
    static uintptr_t slot;                                                                         \
    __typeof__(type) *const next = (__typeof__(type) *)real(&slot, name)

/* ---- memory ---- */

static atomic_int_fast64_t live, live_bytes, peak_bytes;

int64_t inject_live_blocks(void)
{
    return atomic_load(&live);
}

int64_t inject_peak_begin(void)
{
    const int64_t now = atomic_load(&live_bytes);
    atomic_store(&peak_bytes, now);
    return now;
}

int64_t inject_peak_bytes(void)
{
    return atomic_load(&peak_bytes);
}

/* A sanitizer's runtime allocates before it can report block sizes; these blocks are not
 * counted. */
static int counting;

__attribute__((constructor)) static void begin_counting(void)
{
    counting = 1;
}

/* Counts a block that was allocated or will be freed. */
static void *count(void *block, int sign)
{
    if (block == NULL || !counting)
        return block;
    const int64_t bytes = sign * (int64_t)malloc_usable_size(block);
    const int64_t now = atomic_fetch_add_explicit(&live_bytes, bytes, memory_order_relaxed) + bytes;
    int_fast64_t was = atomic_load_explicit(&peak_bytes, memory_order_relaxed);
    while (now > was && !atomic_compare_exchange_weak(&peak_bytes, &was, now))
        ;
    atomic_fetch_add_explicit(&live, sign, memory_order_relaxed);
    return block;
}

void *malloc(size_t bytes)
{
    REAL(void *(size_t), "malloc");
    if (next == NULL)
        return resolver_alloc(bytes);
    return FAILS(INJECT_MALLOC, "malloc") ? NULL : count(next(bytes), 1);
}

void *calloc(size_t n, size_t bytes)
{
    REAL(void *(size_t, size_t), "calloc");
    if (next == NULL)
        return resolver_alloc(n * bytes);
    return FAILS(INJECT_MALLOC, "calloc") ? NULL : count(next(n, bytes), 1);
}

void *realloc(void *old, size_t bytes)
{
    REAL(void *(void *, size_t), "realloc");
    if (FAILS(INJECT_MALLOC, "realloc"))
        return NULL;
    (void)count(old, -1);
    void *out = count(next(old, bytes), 1);
    if (out == NULL && bytes > 0)
        (void)count(old, 1); /* realloc failed: the old block remains */
    return out;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    REAL(void *(size_t, size_t), "aligned_alloc");
    return FAILS(INJECT_MALLOC, "aligned_alloc") ? NULL : count(next(alignment, bytes), 1);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    REAL(int(void **, size_t, size_t), "posix_memalign");
    const int code = FAILS(INJECT_MALLOC, "posix_memalign") ? errno : next(out, alignment, bytes);
    if (code == 0)
        (void)count(*out, 1);
    return code;
}

/* Defined here, because libc's version would call libc's malloc, which is not counted, or is missed
 * under a sanitizer. */
char *strndup(const char *text, size_t n)
{
    const size_t length = strnlen(text, n);
    char *out = FAILS(INJECT_MALLOC, "strndup") ? NULL : malloc(length + 1);
    if (out != NULL) {
        memcpy(out, text, length);
        out[length] = '\0';
    }
    return out;
}

char *strdup(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *out = FAILS(INJECT_MALLOC, "strdup") ? NULL : malloc(bytes);
    return out != NULL ? memcpy(out, text, bytes) : NULL;
}

void free(void *block)
{
    REAL(void(void *), "free");
    if (next == NULL)
        return;
    next(count(block, -1));
}

/* ---- files ---- */

ssize_t write(int fd, const void *data, size_t bytes)
{
    REAL(ssize_t(int, const void *, size_t), "write");
    if (FAILS(INJECT_WRITE, "write")) {
        const int error = errno;
        if (bytes > 1)
            (void)next(fd, data, bytes / 2);
        errno = error;
        return -1;
    }
    return next(fd, data, bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    REAL(ssize_t(int, const void *, size_t, off_t), "pwrite");
    if (FAILS(INJECT_WRITE, "pwrite")) {
        const int error = errno;
        if (bytes > 1)
            (void)next(fd, data, bytes / 2, at);
        errno = error;
        return -1;
    }
    return next(fd, data, bytes, at);
}

size_t fwrite(const void *data, size_t size, size_t n, FILE *stream)
{
    REAL(size_t(const void *, size_t, size_t, FILE *), "fwrite");
    if (FAILS(INJECT_WRITE, "fwrite")) {
        const int error = errno;
        const size_t half = n > 1 ? next(data, size, n / 2, stream) : 0;
        stream->_flags |= 0x20; /* glibc's _IO_ERR_SEEN, so that ferror() reports the error */
        errno = error;
        return half;
    }
    return next(data, size, n, stream);
}

ssize_t read(int fd, void *data, size_t bytes)
{
    REAL(ssize_t(int, void *, size_t), "read");
    return FAILS(INJECT_READ, "read") ? -1 : next(fd, data, bytes);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t at)
{
    REAL(ssize_t(int, void *, size_t, off_t), "pread");
    return FAILS(INJECT_READ, "pread") ? -1 : next(fd, data, bytes, at);
}

size_t fread(void *data, size_t size, size_t n, FILE *stream)
{
    REAL(size_t(void *, size_t, size_t, FILE *), "fread");
    if (FAILS(INJECT_READ, "fread")) {
        stream->_flags |= 0x20;
        return 0;
    }
    return next(data, size, n, stream);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    REAL(void *(void *, size_t, int, int, int, off_t), "mmap");
    return FAILS(INJECT_MAP, "mmap") ? MAP_FAILED : next(at, bytes, protection, flags, fd, offset);
}

int fsync(int fd)
{
    REAL(int(int), "fsync");
    return FAILS(INJECT_SYNC, "fsync") ? -1 : next(fd);
}

int fdatasync(int fd)
{
    REAL(int(int), "fdatasync");
    return FAILS(INJECT_SYNC, "fdatasync") ? -1 : next(fd);
}

int rename(const char *from, const char *to)
{
    REAL(int(const char *, const char *), "rename");
    return FAILS(INJECT_RENAME, "rename") ? -1 : next(from, to);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    REAL(int(int, const char *, int, const char *), "renameat");
    return FAILS(INJECT_RENAME, "renameat") ? -1 : next(from_dir, from, to_dir, to);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int(const char *, mode_t), "mkdir");
    return FAILS(INJECT_MKDIR, "mkdir") ? -1 : next(path, mode);
}

int mkdirat(int dir, const char *path, mode_t mode)
{
    REAL(int(int, const char *, mode_t), "mkdirat");
    return FAILS(INJECT_MKDIR, "mkdirat") ? -1 : next(dir, path, mode);
}

/* The third argument of open(), if the flags require one. */
#define OPEN_MODE(flags, mode)                                                                     \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                         \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        (mode) = va_arg(args, mode_t);                                                             \
        va_end(args);                                                                              \
    }

int open(const char *path, int flags, ...)
{
    REAL(int(const char *, int, ...), "open");
    OPEN_MODE(flags, mode)
    return FAILS(INJECT_OPEN, "open") ? -1 : next(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
    REAL(int(int, const char *, int, ...), "openat");
    OPEN_MODE(flags, mode)
    return FAILS(INJECT_OPEN, "openat") ? -1 : next(dir, path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    REAL(FILE * (const char *, const char *), "fopen");
    return FAILS(INJECT_OPEN, "fopen") ? NULL : next(path, mode);
}

DIR *opendir(const char *path)
{
    REAL(DIR * (const char *), "opendir");
    return FAILS(INJECT_OPEN, "opendir") ? NULL : next(path);
}

DIR *fdopendir(int fd)
{
    REAL(DIR * (int), "fdopendir");
    return FAILS(INJECT_OPEN, "fdopendir") ? NULL : next(fd);
}

int close(int fd)
{
    REAL(int(int), "close");
    const int fault = FAILS(INJECT_CLOSE, "close");
    const int error = errno, code = next(fd);
    if (fault)
        errno = error;
    return fault ? -1 : code;
}

int fflush(FILE *stream)
{
    REAL(int(FILE *), "fflush");
    return FAILS(INJECT_CLOSE, "fflush") ? EOF : next(stream);
}

int fclose(FILE *stream)
{
    REAL(int(FILE *), "fclose");
    const int fault = FAILS(INJECT_CLOSE, "fclose");
    const int error = errno, code = next(stream);
    if (fault)
        errno = error;
    return fault ? EOF : code;
}

int ftruncate(int fd, off_t bytes)
{
    REAL(int(int, off_t), "ftruncate");
    return FAILS(INJECT_SIZE, "ftruncate") ? -1 : next(fd, bytes);
}

int posix_fallocate(int fd, off_t at, off_t bytes)
{
    REAL(int(int, off_t, off_t), "posix_fallocate");
    return FAILS(INJECT_SIZE, "posix_fallocate") ? errno : next(fd, at, bytes);
}

int unlink(const char *path)
{
    REAL(int(const char *), "unlink");
    return FAILS(INJECT_REMOVE, "unlink") ? -1 : next(path);
}

int unlinkat(int dir, const char *path, int flags)
{
    REAL(int(int, const char *, int), "unlinkat");
    return FAILS(INJECT_REMOVE, "unlinkat") ? -1 : next(dir, path, flags);
}

int rmdir(const char *path)
{
    REAL(int(const char *), "rmdir");
    return FAILS(INJECT_REMOVE, "rmdir") ? -1 : next(path);
}

/* Files: open, read whole, write atomically and durably. Folders are in dir.c, memory maps in
 * map.c. */
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs_internal.h"
#include "base/unfinished.h"

lathe_status lathe__io_error(const char *path, const char *what)
{
    const int cause = errno;
    char shown[PATH_MAX];
    return lathe_error(cause == ENOENT ? LATHE_E_NOT_FOUND : LATHE_E_IO, "%s: cannot %s: %s",
                       lathe_path_final(path, shown), what, strerror(cause));
}

const char *lathe_mode_text(uint32_t mode)
{
    return S_ISFIFO(mode)   ? "a named pipe (FIFO)"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISDIR(mode)  ? "a folder"
           : S_ISREG(mode)  ? "a regular file"
                            : "a device";
}

/* Without Git LFS, git checks out a text of about 130 bytes instead of a large file; a reader of
 * texts would take it for the file. Source: the specification of git-lfs. */
static lathe_status refuse_pointer(int fd, const char *path, int64_t bytes)
{
    enum { MAX_POINTER = 1024 };
    static const char begin[] = "version https://git-lfs.github.com/spec/";
    char text[sizeof begin - 1];
    if (bytes < (int64_t)sizeof text || bytes > MAX_POINTER)
        return LATHE_OK;
    const ssize_t n = pread(fd, text, sizeof text, 0);
    if (n < 0)
        return lathe__io_error(path, "read");
    if (n != (ssize_t)sizeof text || memcmp(text, begin, sizeof text) != 0)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s: is a pointer of Git LFS and not the file itself: git lfs pull fetches "
                       "the files",
                       path);
}

/* Without O_NONBLOCK, opening a pipe that has no writer waits for one, and Ctrl-C would have no
 * effect. */
lathe_status lathe_file_open(const char *path, int *out_fd, int64_t *out_bytes)
{
    struct stat info;
    *out_fd = -1;
    *out_bytes = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENXIO)
        return lathe_error(LATHE_E_CONFIG, "%s: is a socket or a device; expected a regular file",
                           path);
    if (fd < 0)
        return lathe__io_error(path, "open");
    if (fstat(fd, &info) != 0) {
        const lathe_status status = lathe__io_error(path, "stat");
        (void)close(fd);
        return status;
    }
    if (!S_ISREG(info.st_mode)) {
        (void)close(fd);
        return lathe_error(LATHE_E_CONFIG, "%s: is %s; expected a regular file", path,
                           lathe_mode_text(info.st_mode));
    }
    const lathe_status status = refuse_pointer(fd, path, info.st_size);
    if (status != LATHE_OK) {
        (void)close(fd);
        return status;
    }
    *out_fd = fd;
    *out_bytes = info.st_size;
    return LATHE_OK;
}

lathe_status lathe_file_stream(const char *path, FILE **out)
{
    int fd = -1;
    int64_t bytes;
    *out = NULL;
    LATHE_TRY(lathe_file_open(path, &fd, &bytes));
    *out = fdopen(fd, "r");
    if (*out != NULL)
        return LATHE_OK;
    const lathe_status status = lathe__io_error(path, "open");
    (void)close(fd);
    return status;
}

lathe_status lathe_file_append(const char *path, int *out_fd)
{
    struct stat info;
    *out_fd = -1;
    const int fd =
        open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (fd < 0 && errno == ENXIO)
        return lathe_error(LATHE_E_IO,
                           "%s: is a pipe, a socket or a device; expected a regular file", path);
    if (fd < 0)
        return lathe_error(LATHE_E_IO, "%s: cannot append: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0) {
        const lathe_status status = lathe__io_error(path, "stat");
        (void)close(fd);
        return status;
    }
    /* A device takes what is written, such as /dev/null, or says why not, such as /dev/full. */
    if (!S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode)) {
        (void)close(fd);
        return lathe_error(LATHE_E_IO, "%s: is %s; expected a regular file", path,
                           lathe_mode_text(info.st_mode));
    }
    *out_fd = fd;
    return LATHE_OK;
}

/* Reads until `bytes` bytes are read or the file ends. */
static lathe_status read_all(int fd, const char *path, char *data, int64_t bytes, int64_t *out_read)
{
    int64_t done = 0;
    while (done < bytes) {
        const ssize_t n = read(fd, data + done, (size_t)(bytes - done));
        if (n == 0)
            break;
        if (n > 0)
            done += n;
        else if (errno != EINTR)
            return lathe__io_error(path, "read");
    }
    *out_read = done;
    return LATHE_OK;
}

lathe_status lathe_file_read(const char *path, int64_t limit, char **out_data, int64_t *out_bytes)
{
    int fd = -1;
    int64_t bytes = 0;
    *out_data = NULL;
    *out_bytes = 0;
    LATHE_TRY(lathe_file_open(path, &fd, &bytes));
    lathe_status status = LATHE_OK;
    char *data = NULL;
    if (limit > 0 && bytes > limit)
        status = lathe_error(LATHE_E_IO, "%s: %lld bytes, expected at most %lld", path,
                             (long long)bytes, (long long)limit);
    else if ((data = malloc((size_t)bytes + 1)) == NULL)
        status =
            lathe_error(LATHE_E_NOMEM, "%s: out of memory for %lld bytes", path, (long long)bytes);
    if (status == LATHE_OK)
        status = read_all(fd, path, data, bytes, out_bytes);
    (void)close(fd);
    if (status != LATHE_OK) {
        free(data);
        return status;
    }
    data[*out_bytes] = '\0';
    *out_data = data;
    return LATHE_OK;
}

lathe_status lathe__fd_write(int fd, const char *path, const char *data, int64_t bytes)
{
    int64_t done = 0;
    while (done < bytes) {
        const ssize_t n = write(fd, data + done, (size_t)(bytes - done));
        if (n >= 0)
            done += n;
        else if (errno != EINTR)
            return lathe__io_error(path, "write");
    }
    return LATHE_OK;
}

static lathe_status write_all(int fd, const char *path, const char *data, int64_t bytes)
{
    LATHE_TRY(lathe__fd_write(fd, path, data, bytes));
    return fsync(fd) == 0 ? LATHE_OK : lathe__io_error(path, "sync");
}

lathe_status lathe_file_sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return lathe_dir_sync(".");
    if (slash == path)
        return lathe_dir_sync("/");
    char *dir = strndup(path, (size_t)(slash - path));
    if (dir == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: out of memory", path);
    const lathe_status status = lathe_dir_sync(dir);
    free(dir);
    return status;
}

lathe_status lathe_file_write_atomic(const char *path, const void *data, int64_t bytes)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *beside = lathe_arena_printf(&arena, "%s.tmp.%ld", path, (long)getpid());
    if (beside == NULL)
        return LATHE_E_NOMEM;
    lathe_status status = LATHE_OK;
    const int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) {
        status = lathe__io_error(beside, "create");
    } else {
        status = write_all(fd, beside, data, bytes);
        if (close(fd) != 0 && status == LATHE_OK)
            status = lathe__io_error(beside, "close");
        if (status == LATHE_OK && rename(beside, path) != 0)
            status = lathe__io_error(path, "rename into place");
        if (status != LATHE_OK)
            (void)unlink(beside);
        else
            status = lathe_file_sync_parent(path);
    }
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_dir_sync(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return lathe__io_error(path, "open folder");
    /* Some file systems cannot sync a folder and return EINVAL; this is not an error. */
    lathe_status status = LATHE_OK;
    if (fsync(fd) != 0 && errno != EINVAL)
        status = lathe__io_error(path, "sync folder");
    (void)close(fd);
    return status;
}

int lathe_path_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

int lathe_path_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *lathe_path_join(lathe_arena *arena, const char *dir, const char *name)
{
    if (name[0] == '/' || dir[0] == '\0')
        return lathe_arena_strdup(arena, name);
    const size_t n = strlen(dir);
    return lathe_arena_printf(arena, dir[n - 1] == '/' ? "%s%s" : "%s/%s", dir, name);
}

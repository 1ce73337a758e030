/* Writes a file that a user named: a regular file, a link to one, a device or a pipe; ends a file
 * that was written piece by piece. */
#include "base/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/fs_internal.h"
#include "base/stale.h"
#include "base/unfinished.h"

/* Writes without fsync, into a device or a pipe, which cannot be synced. */
static lathe_status write_through(const char *path, const char *data, int64_t bytes)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return lathe__io_error(path, "open");
    lathe_status status = lathe__fd_write(fd, path, data, bytes);
    if (close(fd) != 0 && status == LATHE_OK)
        status = lathe__io_error(path, "close");
    return status;
}

lathe_status lathe_file_write_output(const char *path, const void *data, int64_t bytes)
{
    struct stat info;
    lathe_stale_clear(path);
    if (lstat(path, &info) != 0)
        return lathe_file_write_atomic(
            path, data, bytes); /* a new file; lathe_file_write_atomic reports other errors */
    const int is_link = S_ISLNK(info.st_mode);
    if (is_link && stat(path, &info) != 0)
        return lathe__io_error(path, "follow the symbolic link");
    if (S_ISDIR(info.st_mode))
        return lathe_error(LATHE_E_IO, "%s: is a folder, expected a file to write", path);
    if (!S_ISREG(info.st_mode))
        return write_through(path, data, bytes);
    char *target = is_link ? realpath(path, NULL) : NULL;
    if (is_link &&
        target == NULL) /* for example /dev/stdout of a deleted file, which has no path */
        return write_through(path, data, bytes);
    if (target)
        lathe_stale_clear(target);
    const lathe_status status = lathe_file_write_atomic(target ? target : path, data, bytes);
    free(target);
    return status;
}

static lathe_status finish_error(const char *temporary, const char *doing)
{
    const int cause = errno;
    char shown[PATH_MAX];
    return lathe_error(LATHE_E_IO, "%s: %s: %s", lathe_path_final(temporary, shown), doing,
                       strerror(cause));
}

lathe_status lathe_file_finish(FILE **file, const void *first, size_t bytes, char *temporary,
                               const char *path)
{
    if (fseeko(*file, 0, SEEK_SET) != 0 || fwrite(first, bytes, 1, *file) != 1 ||
        fflush(*file) != 0 || fsync(fileno(*file)) != 0)
        return finish_error(temporary, "write");
    const int closed = fclose(*file);
    *file = NULL;
    if (closed != 0)
        return finish_error(temporary, "close");
    if (rename(temporary, path) != 0)
        return finish_error(temporary, "rename");
    temporary[0] = '\0';
    return LATHE_OK;
}

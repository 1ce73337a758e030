/* Takes, tests and releases a lock file. */
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

static lathe_status io_error(const char *path, const char *what)
{
    return lathe_error(LATHE_E_IO, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* Reports the holder of the lock from the first line of the file. */
static lathe_status refuse(int fd, const char *path)
{
    char text[256];
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return lathe_error(LATHE_E_STATE, "%s is held by %s", path, text[0] ? text : "another process");
}

static lathe_status write_holder(int fd, const char *path)
{
    char host[128] = "an unnamed host", when[32] = "", text[256];
    const time_t now = time(NULL);
    struct tm utc;
    (void)gethostname(host, sizeof host - 1);
    host[sizeof host - 1] = '\0';
    if (gmtime_r(&now, &utc))
        (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    const int n =
        snprintf(text, sizeof text, "process %ld on %s since %s\n", (long)getpid(), host, when);
    if (ftruncate(fd, 0) != 0)
        return io_error(path, "write");
    const ssize_t written = pwrite(fd, text, (size_t)n, 0);
    if (written != n) {
        if (written >= 0)
            errno = ENOSPC;
        return io_error(path, "write");
    }
    return LATHE_OK;
}

/* Takes a lock, with retries, because a process in lathe_lock_check holds it for an instant.
 * Returns 0, or errno. */
static int take_soon(int fd)
{
    const struct timespec instant = {.tv_sec = 0, .tv_nsec = 10000000};
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK || i == 10)
            return errno;
        (void)nanosleep(&instant, NULL);
    }
    return 0;
}

lathe_status lathe_lock_check(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return LATHE_OK;
    const int is_held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    const lathe_status status = is_held ? refuse(fd, path) : LATHE_OK;
    (void)close(fd);
    return status;
}

lathe_status lathe_lock_take(const char *path, lathe_lock *out)
{
    out->fd = -1;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return io_error(path, "open");
    lathe_status status = LATHE_OK;
    const int failed = take_soon(fd);
    if (failed == EWOULDBLOCK)
        status = refuse(fd, path);
    else if (failed)
        lathe_log(LATHE_LOG_WARN,
                  "%s: cannot be locked: %s; a second run in this folder would not be noticed",
                  path, strerror(failed));
    if (status == LATHE_OK)
        status = write_holder(fd, path);
    if (status == LATHE_OK)
        out->fd = fd;
    else
        (void)close(fd);
    return status;
}

static void let_go(lathe_lock *lock)
{
    if (lock->fd >= 0)
        (void)close(lock->fd);
    lock->fd = -1;
}

void lathe_lock_release(lathe_lock *lock)
{
    struct stat info;
    if (lock->fd >= 0 && fstat(lock->fd, &info) == 0 && S_ISREG(info.st_mode) &&
        ftruncate(lock->fd, 0) != 0)
        lathe_log(LATHE_LOG_WARN, "the lock file could not be emptied: %s", strerror(errno));
    let_go(lock);
}

static int is_same_file(int fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

lathe_status lathe_lock_inherit(const char *path, lathe_lock *out)
{
    struct stat info;
    out->fd = -1;
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return LATHE_OK;
    int failed;
    while ((failed = flock(fd, LOCK_EX)) != 0 && errno == EINTR)
        continue;
    /* lathe_lock_release empties the file */
    const int is_left = !failed && is_same_file(fd, path) && fstat(fd, &info) == 0 &&
                        S_ISREG(info.st_mode) && info.st_size > 0;
    const lathe_status status = is_left ? write_holder(fd, path) : LATHE_OK;
    if (is_left && status == LATHE_OK)
        out->fd = fd;
    else
        (void)close(fd);
    return status;
}

int lathe_lock_is_there(const lathe_lock *lock, const char *path)
{
    return lock->fd < 0 || is_same_file(lock->fd, path);
}

lathe_status lathe_lock_wait(const char *path, const char *waiting, lathe_lock *out)
{
    out->fd = -1;
    while (out->fd < 0) {
        const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            return io_error(path, "create");
        int failed = flock(fd, LOCK_EX | LOCK_NB);
        if (failed && errno == EWOULDBLOCK) {
            lathe_log(LATHE_LOG_INFO, "%s", waiting);
            while ((failed = flock(fd, LOCK_EX)) != 0 && errno == EINTR)
                continue;
        }
        if (failed || is_same_file(fd, path))
            out->fd = fd;
        else
            (void)close(fd); /* the process that held it has deleted the file */
    }
    return LATHE_OK;
}

void lathe_lock_delete(lathe_lock *lock, const char *path)
{
    if (lock->fd >= 0 && is_same_file(lock->fd, path))
        (void)unlink(path);
    let_go(lock);
}

lathe_status lathe_lock_folder(const char *path, lathe_lock *out)
{
    out->fd = -1;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return io_error(path, "open");
    if (take_soon(fd) == EWOULDBLOCK) {
        (void)close(fd);
        return lathe_error(LATHE_E_STATE, "%s: another process is writing to it", path);
    }
    out->fd = fd;
    return LATHE_OK;
}

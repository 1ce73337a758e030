/* Moves the events of one trace file into another. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/trace.h"
#include "base/trace_text.h"

enum { CHUNK = 256 * 1024 };

static const char opening[] = LATHE__TRACE_OPENING, closing[] = LATHE__TRACE_CLOSING;

/* A trace file that is open; its events are the bytes [begin, end). */
typedef struct events {
    const char *path;
    int fd;
    int64_t begin, end;
} events;

static lathe_status fail(const events *e, const char *what)
{
    return lathe_error(LATHE_E_IO, "%s: cannot %s a trace: %s", e->path, what, strerror(errno));
}

static int holds(int fd, const char *text, int64_t n, int64_t at)
{
    char found[sizeof opening];
    return at >= 0 && pread(fd, found, (size_t)n, at) == (ssize_t)n &&
           memcmp(found, text, (size_t)n) == 0;
}

static lathe_status open_events(const char *path, int flags, events *out)
{
    struct stat info;
    const int64_t n_open = (int64_t)sizeof opening - 1, n_close = (int64_t)sizeof closing - 1;
    *out = (events){.path = path, .fd = open(path, flags | O_CLOEXEC)};
    if (out->fd < 0 || fstat(out->fd, &info) != 0)
        return fail(out, "read");
    out->begin = n_open;
    out->end = (int64_t)info.st_size - n_close;
    if (out->end < out->begin || !holds(out->fd, opening, n_open, 0) ||
        !holds(out->fd, closing, n_close, out->end))
        return lathe_error(LATHE_E_CORRUPT, "%s: not a whole trace", path);
    return LATHE_OK;
}

/* Writes at *at, and moves it. */
static int put(int fd, const char *data, int64_t n, int64_t *at)
{
    while (n > 0) {
        const ssize_t done = pwrite(fd, data, (size_t)n, *at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return 0;
        data += done;
        n -= done;
        *at += done;
    }
    return 1;
}

static lathe_status copy(const events *to, const events *from, char *chunk)
{
    int64_t at = to->end;
    if (to->end > to->begin && !put(to->fd, ",\n", 2, &at))
        return fail(to, "write");
    for (int64_t k = from->begin; k < from->end;) {
        const int64_t left = from->end - k;
        const ssize_t n = pread(from->fd, chunk, (size_t)(left < CHUNK ? left : CHUNK), k);
        if (n <= 0)
            return fail(from, "read");
        if (!put(to->fd, chunk, n, &at))
            return fail(to, "write");
        k += n;
    }
    return put(to->fd, closing, (int64_t)sizeof closing - 1, &at) ? LATHE_OK : fail(to, "write");
}

lathe_status lathe_trace_join(const char *path, const char *part)
{
    events to = {.fd = -1}, from = {.fd = -1};
    char *chunk = malloc(CHUNK);
    lathe_status status =
        chunk ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory to join two traces");
    if (status != LATHE_OK)
        goto out;
    if ((status = open_events(path, O_RDWR, &to)) != LATHE_OK)
        goto out;
    if ((status = open_events(part, O_RDONLY, &from)) != LATHE_OK)
        goto out;
    if (from.end > from.begin)
        status = copy(&to, &from, chunk);
out:
    if (status != LATHE_OK && to.fd >= 0 && from.fd >= 0 && to.end >= to.begin) {
        int64_t at = to.end; /* the trace is as before */
        if (ftruncate(to.fd, (off_t)to.end) == 0)
            (void)put(to.fd, closing, (int64_t)sizeof closing - 1, &at);
    }
    if (to.fd >= 0 && close(to.fd) != 0 && status == LATHE_OK)
        status = fail(&to, "write");
    if (from.fd >= 0)
        (void)close(from.fd);
    free(chunk);
    if (status == LATHE_OK)
        (void)unlink(part);
    return status;
}

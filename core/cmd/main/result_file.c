/* Continues a file of generated texts. */
#include "cmd/main/result_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "base/stale.h"

static lathe_status failed(const char *path, const char *what)
{
    return lathe_error(LATHE_E_IO, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* Counts whole lines, and finds where the last one ends. */
static lathe_status count_lines(int fd, const char *path, int64_t *out_lines, int64_t *out_end)
{
    enum { BYTES = 1 << 16 };
    char *buffer = malloc(BYTES);
    int64_t at = 0;
    ssize_t n = 0;
    *out_lines = *out_end = 0;
    if (!buffer)
        return lathe_error(LATHE_E_NOMEM, "%s", path);
    while ((n = pread(fd, buffer, BYTES, at)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            if (buffer[i] == '\n') {
                ++*out_lines;
                *out_end = at + i + 1;
            }
        at += n;
    }
    free(buffer);
    return n < 0 ? failed(path, "read") : LATHE_OK;
}

static lathe_status compare(const char *path, const char *prompts, const json_t *begun, json_t *now)
{
    const char *key;
    json_t *value;
    json_object_foreach(now, key, value)
    {
        const json_t *old = json_object_get(begun, key);
        if (old && json_equal(old, value))
            continue;
        if (strcmp(key, "prompts") == 0)
            return lathe_error(LATHE_E_CONFIG,
                               "%s was begun with other prompts than those that %s holds now: "
                               "restore the file of prompts to go on, or choose another --output",
                               path, prompts);
        char *was = old ? json_dumps(old, JSON_ENCODE_ANY) : NULL;
        char *is = json_dumps(value, JSON_ENCODE_ANY);
        const lathe_status status = lathe_error(
            LATHE_E_CONFIG,
            "%s was begun with %s %.200s, and now it is %.200s: use the same settings to go on, or "
            "another file",
            path, key, was ? was : "unset", is ? is : "?");
        free(was);
        free(is);
        return status;
    }
    return LATHE_OK;
}

static lathe_status check_settings(const char *path, const char *prompts, const char *stored,
                                   int64_t bytes, json_t *settings)
{
    json_t *begun = NULL;
    if (bytes > 0 && !lathe_path_exists(stored))
        return lathe_error(
            LATHE_E_CONFIG,
            "%s exists and is no file that lathe generate --prompts has begun (%s is "
            "missing): choose another name",
            path, stored);
    if (bytes > 0) {
        LATHE_TRY(lathe_json_load_file(stored, &begun));
        const lathe_status status = compare(path, prompts, begun, settings);
        json_decref(begun);
        return status;
    }
    char *text = json_dumps(settings, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    if (!text)
        return lathe_error(LATHE_E_NOMEM, "%s", stored);
    const lathe_status status = lathe_file_write_atomic(stored, text, (int64_t)strlen(text));
    free(text);
    return status;
}

static lathe_status open_file(lathe_result_file *f, const char *prompts, json_t *settings)
{
    char stored[4096];
    struct stat st;
    int64_t end = 0;
    f->fd = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f->fd < 0)
        return failed(f->path, "write");
    if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return lathe_error(LATHE_E_CONFIG, "%s: expected a regular file to write to", f->path);
    if (flock(f->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return lathe_error(LATHE_E_STATE, "%s: another process writes it now", f->path);
    if (snprintf(stored, sizeof stored, "%s.settings.json", f->path) >= (int)sizeof stored)
        return lathe_error(LATHE_E_ARG, "%s: the name is too long", f->path);
    lathe_stale_clear(stored);
    LATHE_TRY(check_settings(f->path, prompts, stored, st.st_size, settings));
    LATHE_TRY(count_lines(f->fd, f->path, &f->n_lines, &end));
    if (ftruncate(f->fd, end) != 0 || lseek(f->fd, 0, SEEK_END) < 0)
        return failed(f->path, "write");
    return LATHE_OK;
}

lathe_status lathe_result_file_open(const char *path, const char *prompts, json_t *settings,
                                    lathe_result_file *out)
{
    *out = (lathe_result_file){.path = path, .fd = -1};
    const lathe_status status = open_file(out, prompts, settings);
    if (status != LATHE_OK)
        lathe_result_file_close(out);
    return status;
}

lathe_status lathe_result_file_put(lathe_result_file *f, const char *line, int64_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = write(f->fd, line, (size_t)bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return failed(f->path, "write");
        line += n;
        bytes -= n;
    }
    f->n_lines++;
    return LATHE_OK;
}

void lathe_result_file_close(lathe_result_file *f)
{
    if (f->fd >= 0)
        (void)close(f->fd);
    f->fd = -1;
}

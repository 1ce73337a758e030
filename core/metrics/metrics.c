/* Writes metrics.jsonl. */
#include "metrics/metrics.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/map.h"

/* Bytes of the complete lines at the beginning of the text, up to the first line whose step is
 * above `step`. */
static int64_t earlier_bytes(const char *text, int64_t bytes, int64_t step)
{
    int64_t at = 0;
    while (at < bytes) {
        const char *end = memchr(text + at, '\n', (size_t)(bytes - at));
        char begin[40] = "";
        long long line_step = 0;
        if (end == NULL)
            break;
        const int64_t n = end + 1 - (text + at);
        memcpy(begin, text + at, (size_t)(n < 39 ? n : 39));
        if (sscanf(begin, "{\"step\": %lld", &line_step) == 1 && line_step > step)
            break;
        at += n;
    }
    return at;
}

lathe_status lathe_lines_cut(const char *path, int64_t step)
{
    lathe_map map;
    struct stat info;
    /* A pipe or device has no earlier lines. */
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0)
        return LATHE_OK;
    LATHE_TRY(lathe_map_open(path, &map));
    const int64_t kept_bytes = earlier_bytes((const char *)map.data, map.bytes, step);
    lathe_status status = LATHE_OK;
    if (kept_bytes != map.bytes) /* the file may have become shorter since it was mapped */
        status = lathe_map_check(&map);
    if (kept_bytes != map.bytes && status == LATHE_OK)
        status = lathe_file_write_atomic(path, map.data, kept_bytes);
    lathe_map_close(&map);
    return status;
}

lathe_status lathe_lines_copy_after(const char *path, int64_t step, const char *to)
{
    lathe_map map;
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0)
        return LATHE_OK;
    LATHE_TRY(lathe_map_open(path, &map));
    const char *text = (const char *)map.data;
    const int64_t kept_bytes = earlier_bytes(text, map.bytes, step);
    int64_t end = map.bytes;
    while (end > kept_bytes && text[end - 1] != '\n')
        end--;
    const lathe_status status =
        end > kept_bytes ? lathe_file_write_atomic(to, text + kept_bytes, end - kept_bytes)
                         : LATHE_OK;
    lathe_map_close(&map);
    return status;
}

int64_t lathe_lines_last(const char *path)
{
    lathe_map map;
    struct stat info;
    long long step = -1;
    char begin[40] = "";
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0 ||
        lathe_map_open(path, &map) != LATHE_OK)
        return -1;
    const char *text = (const char *)map.data;
    int64_t end = map.bytes;
    while (end > 0 && text[end - 1] != '\n')
        end--;
    int64_t at = end > 0 ? end - 1 : 0;
    while (at > 0 && text[at - 1] != '\n')
        at--;
    memcpy(begin, text + at, (size_t)(end - at < 39 ? end - at : 39));
    if (sscanf(begin, "{\"step\": %lld", &step) != 1)
        step = -1;
    lathe_map_close(&map);
    return step;
}

lathe_status lathe_metrics_open(lathe_metrics *m, const char *dir, int64_t step)
{
    *m = (lathe_metrics){NULL, NULL};
    if (dir == NULL)
        return LATHE_OK;
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, dir, "metrics.jsonl");
    lathe_status status = path ? lathe_lines_cut(path, step) : LATHE_E_NOMEM;
    int fd = -1;
    if (status == LATHE_OK)
        status = lathe_file_append(path, &fd);
    if (status == LATHE_OK) {
        m->path = strdup(path);
        m->file = fdopen(fd, "a");
        if (m->file == NULL)
            (void)close(fd);
        if (m->file == NULL || m->path == NULL)
            status = lathe_error(LATHE_E_NOMEM, "no memory for %s", path);
    }
    lathe_arena_fini(&arena);
    if (status != LATHE_OK)
        lathe_metrics_close(m);
    return status;
}

/* Writes the name of a metric as JSON. Plain names, which most are, need no allocation. */
static lathe_status put_key(FILE *file, const char *key)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    const char *at = key;
    while (*at >= 0x20 && *at < 0x7F && *at != '"' && *at != '\\')
        at++;
    if (*at == '\0') {
        (void)fprintf(file, ", \"%s\": ", key);
        return LATHE_OK;
    }
    lathe_buffer_json_string(&text, key);
    const lathe_status status = text.status;
    if (status == LATHE_OK)
        (void)fprintf(file, ", %s: ", text.data);
    lathe_buffer_fini(&text);
    return status;
}

lathe_status lathe_metrics_write(lathe_metrics *m, int64_t step, int32_t n, const char *const *keys,
                                 const double *values)
{
    if (m->file == NULL)
        return LATHE_OK;
    (void)fprintf(m->file, "{\"step\": %lld", (long long)step);
    for (int32_t i = 0; i < n; i++) {
        LATHE_TRY(put_key(m->file, keys[i]));
        if (isfinite(values[i]))
            (void)fprintf(m->file, "%.9g", values[i]);
        else
            (void)fputs("null", m->file);
    }
    if (fputs("}\n", m->file) == EOF || fflush(m->file) != 0)
        return lathe_error(LATHE_E_IO, "%s: cannot write the figures of step %lld: %s", m->path,
                           (long long)step, strerror(errno));
    return LATHE_OK;
}

void lathe_metrics_close(lathe_metrics *m)
{
    if (m->file)
        (void)fclose(m->file);
    free(m->path);
    *m = (lathe_metrics){NULL, NULL};
}

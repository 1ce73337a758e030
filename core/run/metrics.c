/* metrics.jsonl. */
#include "run/metrics.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"

/* Keeps the whole lines whose step is at most `step`. */
static void keep_until(const char *text, int64_t bytes, int64_t step, lathe_buffer *out)
{
    const char *end = text + bytes;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) /* torn by a crash */
            return;
        long long at = 0;
        if (sscanf(line, "{\"step\": %lld", &at) == 1 && at <= step)
            lathe_buffer_append(out, line, stop + 1 - line);
        line = stop + 1;
    }
}

static lathe_status drop_later(const char *path, int64_t step)
{
    char *text = NULL;
    int64_t bytes = 0;
    if (!lathe_path_exists(path))
        return LATHE_OK;
    LATHE_TRY(lathe_file_read(path, 0, &text, &bytes));
    lathe_buffer kept = LATHE_BUFFER_INIT;
    keep_until(text, bytes, step, &kept);
    lathe_status status = kept.status;
    if (status == LATHE_OK && kept.len != bytes)
        status = lathe_file_write_atomic(path, kept.data ? kept.data : "", kept.len);
    lathe_buffer_fini(&kept);
    free(text);
    return status;
}

lathe_status lathe_metrics_open(lathe_metrics *m, const char *dir, int64_t step)
{
    m->file = NULL;
    if (!dir)
        return LATHE_OK;
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = lathe_path_join(&arena, dir, "metrics.jsonl");
    lathe_status status = path ? drop_later(path, step) : LATHE_E_NOMEM;
    if (status == LATHE_OK) {
        m->file = fopen(path, "a");
        if (!m->file)
            status = lathe_error(LATHE_E_IO, "%s: cannot append: %s", path, strerror(errno));
    }
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_metrics_write(lathe_metrics *m, int64_t step, int32_t n, const char *const *keys,
                                 const double *values)
{
    if (!m->file)
        return LATHE_OK;
    (void)fprintf(m->file, "{\"step\": %lld", (long long)step);
    for (int32_t i = 0; i < n; i++) {
        if (isfinite(values[i]))
            (void)fprintf(m->file, ", \"%s\": %.9g", keys[i], values[i]);
        else
            (void)fprintf(m->file, ", \"%s\": null", keys[i]);
    }
    if (fputs("}\n", m->file) == EOF || fflush(m->file) != 0)
        return lathe_error(LATHE_E_IO, "metrics.jsonl: cannot write: %s", strerror(errno));
    return LATHE_OK;
}

void lathe_metrics_close(lathe_metrics *m)
{
    if (m->file)
        (void)fclose(m->file);
    m->file = NULL;
}

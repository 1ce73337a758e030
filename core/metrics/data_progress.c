/* Shows the progress of data preparation. */
#include "metrics/data_progress.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/print.h"
#include "exec/program/exec.h"
#include "metrics/progress.h"
#include "metrics/status_line.h"

#define IN_PLACE_SECONDS 0.1

void lathe_data_progress_init(lathe_data_progress *p, FILE *out, int32_t mode)
{
    memset(p, 0, sizeof *p);
    p->out = out;
    p->off = mode == LATHE_PROGRESS_OFF;
    p->in_place = mode == LATHE_PROGRESS_AUTO && isatty(fileno(out));
}

void lathe_data_progress_end(lathe_data_progress *p)
{
    if (p->line_open) {
        lathe_print_to(p->out, "\n");
        (void)fflush(p->out);
    }
    p->line_open = 0;
}

static void log_line(const lathe_status_line *line)
{
    char text[512] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    if (f == NULL)
        return;
    lathe_status_line_print(line, 0, f);
    (void)fclose(f);
    lathe_log(LATHE_LOG_INFO, "%s", text);
}

void lathe_data_progress_show(void *progress, const char *path, int64_t done_bytes,
                              int64_t total_bytes, int64_t n_tokens)
{
    lathe_data_progress *p = progress;
    const double now = lathe_now();
    if (p->off)
        return;
    if (p->path == NULL || strcmp(p->path, path) != 0) {
        lathe_data_progress_end(p);
        p->path = path;
        p->begun = p->last = now;
        p->begun_bytes = 0;
    }
    if (p->begun_bytes == 0)
        p->begun_bytes = done_bytes;
    const int done = total_bytes > 0 && done_bytes >= total_bytes;
    const double seconds = now - p->begun;
    if (p->in_place ? now - p->last < IN_PLACE_SECONDS && !done
                    : now - p->last < LATHE_PROGRESS_SECONDS)
        return;
    p->last = now;
    const double rate = seconds > 0.0 ? (double)(done_bytes - p->begun_bytes) / seconds : 0.0;
    const double left = rate > 0.0 ? (double)(total_bytes - done_bytes) / rate : 0.0;
    lathe_status_line line = {.n = 0};
    lathe_status_line_add(&line, 1, "%.80s:", path);
    if (total_bytes > 0)
        lathe_status_line_add(&line, 5, "tokenised %.1f of %.1f MB (%.0f%%)",
                              (double)done_bytes / 1e6, (double)total_bytes / 1e6,
                              100.0 * (double)done_bytes / (double)total_bytes);
    else
        lathe_status_line_add(&line, 5, "tokenised %.1f MB", (double)done_bytes / 1e6);
    lathe_status_line_add(&line, 3, "%.1f MB/s", rate / 1e6);
    lathe_status_line_add(&line, 0, "%.1fM tokens", (double)n_tokens / 1e6);
    if (total_bytes > 0)
        lathe_status_line_add_eta(&line, 4, left);
    if (!p->in_place) {
        log_line(&line);
        return;
    }
    lathe_print_raw(p->out, "\r", 1);
    lathe_status_line_print(&line, lathe_terminal_columns(p->out), p->out);
    lathe_print_raw(p->out, "\x1b[K", 3);
    (void)fflush(p->out);
    p->line_open = 1;
    if (done)
        lathe_data_progress_end(p);
}

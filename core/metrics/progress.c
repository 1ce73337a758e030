/* Prints the progress of training. */
#include "metrics/progress.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/print.h"
#include "exec/program/exec.h"
#include "metrics/status_line.h"

void lathe_progress_init(lathe_progress *p, FILE *out, int32_t mode, int32_t log_every)
{
    const char *terminal = getenv("TERM");
    memset(p, 0, sizeof *p);
    p->out = out;
    p->now = lathe_now;
    p->off = mode == LATHE_PROGRESS_OFF;
    p->in_place = mode == LATHE_PROGRESS_AUTO && isatty(fileno(out)) && terminal &&
                  strcmp(terminal, "dumb") != 0;
    p->log_every = log_every;
    p->n_lines = 1;
    p->begun = p->last_line = p->now();
    p->held_validation = NAN;
}

/* Whether a plain line may be written now. */
static int due(const lathe_progress *p)
{
    const double now = p->now(), seconds = now - p->begun;
    return p->n_lines < 2 || (double)(p->n_lines + 1) * LATHE_PROGRESS_SECONDS <= seconds ||
           now - p->last_line >= LATHE_PROGRESS_SILENCE;
}

/* Checks the stream after every write: the reader may have closed it. */
static void settle(lathe_progress *p)
{
    errno = 0;
    if (fflush(p->out) == 0 && !ferror(p->out))
        return;
    p->off = p->closed = 1;
    p->line_open = 0;
    lathe_log(
        LATHE_LOG_WARN,
        "the output cannot be written any more (%s): the run continues without progress lines",
        errno ? strerror(errno) : "closed");
}

/* Prints the figures of a step. A figure of low rank is left out first; step and loss never are. */
static void put_line(const lathe_progress *p, const lathe_progress_step *s)
{
    lathe_status_line line = {.n = 0};
    const double speed = s->tokens_per_second;
    lathe_status_line_add(&line, 9, "step %lld/%lld", (long long)s->step, (long long)s->max_steps);
    lathe_status_line_add(&line, 9, "loss %.4f", s->loss);
    if (s->headline_name != NULL)
        lathe_status_line_add(&line, 8, "%s %.4g", s->headline_name, s->headline);
    lathe_status_line_add(&line, 4, "|g| %.3g", s->grad_norm);
    lathe_status_line_add(&line, 1, "|w| %.4g", s->param_norm);
    lathe_status_line_add(&line, 3, "lr %.2e", s->lr);
    lathe_status_line_add(&line, 2, "epoch %.2f", s->epoch);
    if (speed >= 1e4)
        lathe_status_line_add(&line, 6, "%.1fk tok/s", speed / 1e3);
    else
        lathe_status_line_add(&line, 6, "%.0f tok/s", speed);
    lathe_status_line_add(&line, 0, "%.0f GFLOP/s", s->flops_per_second / 1e9);
    if (s->peak_flops > 0.0)
        lathe_status_line_add(&line, 5, "%.0f%% of peak",
                              100.0 * s->flops_per_second / s->peak_flops);
    lathe_status_line_add(&line, 2, "%.2f GiB",
                          (double)s->memory_bytes / (1024.0 * 1024.0 * 1024.0));
    if (!p->in_place && isfinite(p->held_validation))
        lathe_status_line_add(&line, 8, "validation %.4f", p->held_validation);
    lathe_status_line_add_time(&line, 1, "elapsed", s->elapsed);
    lathe_status_line_add_eta(&line, 7, p->seconds_per_step * (double)(s->max_steps - s->step));
    lathe_status_line_print(&line, p->in_place ? lathe_terminal_columns(p->out) : 0, p->out);
}

void lathe_progress_show(lathe_progress *p, const lathe_progress_step *s)
{
    p->seconds_per_step = p->seconds_per_step == 0.0
                              ? s->step_seconds
                              : 0.9 * p->seconds_per_step + 0.1 * s->step_seconds;
    if (p->off)
        return;
    const int32_t last = s->is_last || s->step >= s->max_steps;
    if (p->in_place) {
        lathe_print_raw(p->out, "\r", 1);
        put_line(p, s);
        lathe_print_raw(p->out, "\x1b[K", 3);
        p->line_open = 1;
        if (last)
            lathe_progress_break(p);
    } else if (last || (p->log_every > 0 ? s->step == 1 || s->step % p->log_every == 0 : due(p))) {
        put_line(p, s);
        lathe_print_to(p->out, "\n");
        p->held_validation = NAN;
        p->n_lines++;
        p->last_line = p->now();
    } else {
        return;
    }
    settle(p);
}

void lathe_progress_note(lathe_progress *p, int32_t always, const char *format, ...)
{
    va_list args;
    if (p->closed || !(always || (!p->off && (p->in_place || p->log_every > 0 || due(p)))))
        return;
    lathe_progress_break(p);
    va_start(args, format);
    lathe_print_list(p->out, format, args);
    va_end(args);
    lathe_print_to(p->out, "\n");
    p->n_lines++;
    p->last_line = p->now();
    settle(p);
}

void lathe_progress_validation(lathe_progress *p, int64_t step, double loss, const char *detail,
                               int32_t averaged, int32_t always)
{
    const int64_t before = p->n_lines;
    lathe_progress_note(p, always, "step %lld  validation loss %.4f  %s%s", (long long)step, loss,
                        detail, averaged ? "  averaged weights" : "");
    p->held_validation = p->n_lines == before ? loss : (double)NAN;
}

void lathe_progress_break(lathe_progress *p)
{
    if (!p->line_open)
        return;
    p->line_open = 0;
    lathe_print_to(p->out, "\n");
    settle(p);
}

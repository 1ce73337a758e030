/* The progress line. */
#include "run/progress.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "run/exec.h"

void lathe_progress_init(lathe_progress *p, FILE *out, int32_t mode, int32_t log_every)
{
    memset(p, 0, sizeof *p);
    p->out = out;
    p->off = mode == LATHE_PROGRESS_OFF;
    p->in_place = mode == LATHE_PROGRESS_AUTO && isatty(fileno(out));
    p->log_every = log_every;
    p->min_seconds = log_every > 0 ? 0.0 : 10.0;
}

static void put_eta(FILE *out, double seconds)
{
    if (!isfinite(seconds) || seconds < 0.0)
        seconds = 0.0;
    const long s = (long)(seconds + 0.5);
    if (s >= 3600)
        (void)fprintf(out, "  ETA %ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        (void)fprintf(out, "  ETA %02ld:%02ld", s / 60, s % 60);
}

static void put_line(const lathe_progress *p, const lathe_progress_step *s)
{
    FILE *out = p->out;
    (void)fprintf(out, "step %lld/%lld  loss %.4f  |g| %.3g  |w| %.4g  lr %.2e", (long long)s->step,
                  (long long)s->max_steps, s->loss, s->grad_norm, s->param_norm, s->lr);
    if (s->tokens_per_second >= 1e4)
        (void)fprintf(out, "  %.1fk tok/s", s->tokens_per_second / 1e3);
    else
        (void)fprintf(out, "  %.0f tok/s", s->tokens_per_second);
    (void)fprintf(out, "  %.0f GFLOP/s", s->flops_per_second / 1e9);
    if (s->peak_flops > 0.0)
        (void)fprintf(out, " (%.0f%% of peak)", 100.0 * s->flops_per_second / s->peak_flops);
    (void)fprintf(out, "  %.2f GiB", (double)s->memory_bytes / (1024.0 * 1024.0 * 1024.0));
    put_eta(out, p->seconds_per_step * (double)(s->max_steps - s->step));
}

void lathe_progress_show(lathe_progress *p, const lathe_progress_step *s)
{
    p->seconds_per_step = p->seconds_per_step == 0.0
                              ? s->step_seconds
                              : 0.9 * p->seconds_per_step + 0.1 * s->step_seconds;
    if (p->off)
        return;
    const int32_t last = s->step >= s->max_steps;
    const double now = lathe_now();
    if (p->in_place) {
        (void)fprintf(p->out, "\r");
        put_line(p, s);
        (void)fprintf(p->out, "\x1b[K");
        p->line_open = 1;
        if (last)
            lathe_progress_break(p);
    } else if (last || s->step == 1 ||
               ((p->log_every <= 1 || s->step % p->log_every == 0) &&
                now - p->last_line >= p->min_seconds)) {
        put_line(p, s);
        (void)fputc('\n', p->out);
        p->last_line = now;
    }
    (void)fflush(p->out);
}

void lathe_progress_break(lathe_progress *p)
{
    if (p->line_open) {
        (void)fputc('\n', p->out);
        (void)fflush(p->out);
    }
    p->line_open = 0;
}

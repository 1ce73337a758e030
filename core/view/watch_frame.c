/* Draws the frame of `lathe watch`:
 *
 *   out/run                                                            * training
 *   llama, 9.99M parameters, bf16, adamw, cosine, cpu_avx512_bf16 with 2 threads
 *   step 212/400 ##########.........   53%   ETA 01:26   elapsed 01:40
 *   loss 3.317   eval 4.244 at 200   lr 5.0e-04   |g| 0.66   10.4k tok/s   71% of peak
 *   memory 397 MiB of 397 MiB planned   checkpoint step-00000200, 00:12 ago
 *
 *   the loss, large
 *   three or four small curves
 * q quits
 */
#include "view/watch_frame.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"

/* State for drawing one frame. */
typedef struct painter {
    lathe_canvas *c;
    const lathe_run_view *v;
    lathe_arena arena;
    int32_t pulse, is_live;
} painter;

static void draw_head(const painter *p)
{
    static const int32_t styles[] = {LATHE_STYLE_DIM,  LATHE_STYLE_GOOD, LATHE_STYLE_WARN,
                                     LATHE_STYLE_GOOD, LATHE_STYLE_WARN, LATHE_STYLE_WARN,
                                     LATHE_STYLE_BAD,  LATHE_STYLE_BAD};
    const char *state = lathe_run_pulse_text(p->pulse);
    const int32_t at = p->c->width - (int32_t)strlen(state) - 2;
    lathe_canvas_text(p->c, 0, 0, LATHE_STYLE_BOLD, "%s", p->v->dir);
    lathe_canvas_put(p->c, at - 1, 0, LATHE_STYLE_PLAIN, ' ');
    lathe_canvas_put(p->c, at, 0, styles[p->pulse], p->c->is_unicode ? 0x25CF : '*');
    lathe_canvas_put(p->c, at + 1, 0, LATHE_STYLE_PLAIN, ' ');
    lathe_canvas_text(p->c, at + 2, 0, styles[p->pulse], "%s", state);
}

static void draw_parts(const painter *p)
{
    const lathe_run_view *v = p->v;
    char n[32];
    if (v->record == NULL) {
        lathe_canvas_text(p->c, 0, 1, LATHE_STYLE_DIM, "no run.json: curves only");
        return;
    }
    lathe_axis_text(lathe_run_view_number(v, "model.parameters"), 0.0, LATHE_UNIT_NONE, n,
                    sizeof n);
    lathe_canvas_text(
        p->c, 0, 1, LATHE_STYLE_DIM, "%s, %s parameters, %s, %s, %s, %s with %.0f threads",
        lathe_run_view_text(v, "model.family"), n, lathe_run_view_text(v, "precision.used"),
        lathe_run_view_text(v, "config.optimizer.name"),
        lathe_run_view_text(v, "config.scheduler.name"), lathe_run_view_text(v, "machine.device"),
        lathe_run_view_number(v, "machine.threads"));
}

static void draw_progress(const painter *p)
{
    const double max_steps = lathe_run_view_number(p->v, "max_steps");
    char text[32];
    int32_t x = 0;
    const int64_t step = p->v->step < 0 ? 0 : p->v->step;
    if (!(max_steps > 0.0)) {
        lathe_canvas_text(p->c, 0, 2, LATHE_STYLE_PLAIN, "step %lld", (long long)step);
        return;
    }
    const double share = (double)step / max_steps;
    const int32_t width = p->c->width / 3 < 12 ? 12 : p->c->width / 3;
    x = lathe_canvas_text(p->c, x, 2, LATHE_STYLE_BOLD, "step %lld/%.0f ", (long long)step,
                          max_steps);
    lathe_canvas_bar(p->c, x, 2, width, LATHE_STYLE_CURVE, share);
    x = lathe_canvas_text(p->c, x + width, 2, LATHE_STYLE_PLAIN, " %3.0f%%", share * 100.0);
    if (p->pulse == LATHE_PULSE_RUNNING || p->pulse == LATHE_PULSE_STALLED) {
        lathe_duration_text(lathe_run_view_eta(p->v), text, sizeof text);
        x = lathe_canvas_text(p->c, x, 2, LATHE_STYLE_PLAIN, "   ETA %s", text);
    }
    lathe_duration_text(lathe_run_view_elapsed(p->v, p->pulse), text, sizeof text);
    lathe_canvas_text(p->c, x, 2, LATHE_STYLE_DIM, "   elapsed %s", text);
}

/* Draws "  name value" if there is a value. */
static int32_t fact(const painter *p, int32_t x, int32_t y, const char *before, double value,
                    int32_t unit, const char *suffix)
{
    char text[32];
    if (!isfinite(value))
        return x;
    lathe_axis_text(value, 0.0, unit, text, sizeof text);
    x = lathe_canvas_text(p->c, x, y, LATHE_STYLE_DIM, "%s", before);
    x = lathe_canvas_text(p->c, x, y, LATHE_STYLE_PLAIN, "%s%s", text, suffix);
    return x + 3;
}

static void draw_figures(const painter *p)
{
    const lathe_run_view *v = p->v;
    const lathe_series *eval = lathe_run_view_series(v, "eval_loss");
    char suffix[48];
    int64_t at = 0;
    int32_t x = fact(p, 0, 3, "loss ", lathe_run_view_last(v, "loss"), LATHE_UNIT_NONE, "");
    if (eval) {
        x = fact(p, x, 3, "eval ", lathe_series_last(eval), LATHE_UNIT_NONE, "");
        const double least = lathe_series_least(eval, &at);
        (void)snprintf(suffix, sizeof suffix, " at %lld", (long long)at);
        x = fact(p, x, 3, "best ", least, LATHE_UNIT_NONE, suffix);
    }
    x = fact(p, x, 3, "lr ", lathe_run_view_last(v, "lr"), LATHE_UNIT_NONE, "");
    x = fact(p, x, 3, "|g| ", lathe_run_view_last(v, "grad_norm"), LATHE_UNIT_NONE, "");
    x = fact(p, x, 3, "", lathe_run_view_last(v, "tokens_per_s"), LATHE_UNIT_NONE, " tok/s");
    x = fact(p, x, 3, "", lathe_run_view_last(v, "share_of_peak"), LATHE_UNIT_SHARE, " of peak");
    (void)fact(p, x, 3, "loss scale ", lathe_run_view_last(v, "loss_scale"), LATHE_UNIT_NONE, "");
}

static void draw_memory(const painter *p)
{
    const lathe_run_view *v = p->v;
    const double planned = lathe_run_view_number(v, "plan.memory_bytes");
    char text[96];
    int32_t x =
        fact(p, 0, 4, "memory ", lathe_run_view_last(v, "memory_bytes"), LATHE_UNIT_BYTES, "");
    if (x > 0)
        x = fact(p, x - 2, 4, "of ", planned, LATHE_UNIT_BYTES, " planned");
    x = fact(p, x, 4, "tokens ", lathe_run_view_last(v, "tokens"), LATHE_UNIT_NONE, "");
    /* of the most popular expert over the mean; experts without a token */
    x = fact(p, x, 4, "expert load ", lathe_run_view_last(v, "router_max_load"), LATHE_UNIT_NONE,
             "x");
    x = fact(p, x, 4, "dead ", lathe_run_view_last(v, "router_dead_experts"), LATHE_UNIT_NONE, "");
    if (v->n_checkpoints == 0) {
        lathe_canvas_text(p->c, x, 4, LATHE_STYLE_DIM, "no checkpoint yet");
        return;
    }
    const lathe_checkpoint_view *last = &v->checkpoints[v->n_checkpoints - 1];
    lathe_duration_text(lathe_time_now() - last->written, text, sizeof text);
    x = lathe_canvas_text(p->c, x, 4, LATHE_STYLE_DIM, "checkpoint ");
    x = lathe_canvas_text(p->c, x, 4, LATHE_STYLE_PLAIN, "%s", last->name);
    lathe_canvas_text(p->c, x, 4, LATHE_STYLE_DIM, ", %s ago", text);
}

/* Draws the last row: how the run ended, what could not be read, how to quit. */
static void draw_foot(const painter *p)
{
    const json_t *start = lathe_run_view_start(p->v);
    const char *message = json_string_value(json_object_get(start, "message"));
    const int64_t bad = lathe_metrics_reader_bad_lines(p->v->reader);
    const int32_t y = p->c->height - 1;
    int32_t x = 0;
    if (p->pulse == LATHE_PULSE_FAILED && message)
        x = lathe_canvas_text(p->c, x, y, LATHE_STYLE_BAD, "%s   ", message);
    else if (p->pulse == LATHE_PULSE_STOPPED)
        x = lathe_canvas_text(p->c, x, y, LATHE_STYLE_BAD,
                              "the process of this run has ended without a record   ");
    if (bad > 0)
        x = lathe_canvas_text(p->c, x, y, LATHE_STYLE_WARN,
                              "lines of metrics.jsonl that cannot be read: %lld   ",
                              (long long)bad);
    if (p->is_live)
        lathe_canvas_text(p->c, x, y, LATHE_STYLE_DIM, "q quits; the run continues");
}

/* Draws one or two keys as a plot in the rectangle `at`. */
static lathe_status draw_curves(painter *p, const int32_t at[4], const char *title,
                                const char *const keys[2], const char *const labels[2],
                                int32_t color, int32_t unit)
{
    lathe_curve curves[2];
    lathe_plot plot = {.title = title, .curves = curves, .unit = unit, .x_end = (double)p->v->step};
    for (int i = 0; i < 2 && keys[i]; i++) {
        const lathe_series *s = lathe_run_view_series(p->v, keys[i]);
        if (s == NULL)
            continue;
        lathe_curve *c = &curves[plot.n_curves++];
        LATHE_TRY(lathe_series_curve(s, at[2] * (p->c->is_unicode ? 2 : 1), &p->arena, c));
        c->label = labels[i];
        c->color = color + i;
        c->is_marks = i == 1;
    }
    lathe_canvas_plot(p->c, at[0], at[1], at[2], at[3], &plot);
    return LATHE_OK;
}

static lathe_status draw_plots(painter *p)
{
    static const struct {
        const char *title, *key;
        int32_t color, unit;
    } small[] = {{"grad norm", "grad_norm", 2, LATHE_UNIT_NONE},
                 {"learning rate", "lr", 3, LATHE_UNIT_NONE},
                 {"tokens/s", "tokens_per_s", 4, LATHE_UNIT_NONE},
                 {"step time", "step_seconds", 5, LATHE_UNIT_SECONDS}};
    static const char *const losses[] = {"loss", "eval_loss"}, *const names[] = {"train", "eval"};
    static const char *const none[] = {NULL, NULL};
    const int32_t top = 6, width = p->c->width, height = p->c->height - top - 1;
    const int32_t n_small = width >= 140 ? 4 : width >= 72 ? 3 : width >= 48 ? 2 : 0;
    const int32_t with_small = height >= 14 && n_small > 0;
    const int32_t large = with_small ? height - height * 2 / 5 - 1 : height;
    const int32_t loss_at[] = {0, top, width, large};
    LATHE_TRY(draw_curves(p, loss_at, "loss", losses, names, 0, LATHE_UNIT_NONE));
    for (int32_t i = 0; with_small && i < n_small; i++) {
        const char *const keys[] = {small[i].key, NULL};
        const int32_t left = (width + 2) * i / n_small, right = (width + 2) * (i + 1) / n_small - 2;
        const int32_t at[] = {left, top + large + 1, right - left, height - large - 1};
        LATHE_TRY(draw_curves(p, at, small[i].title, keys, none, small[i].color, small[i].unit));
    }
    return LATHE_OK;
}

lathe_status lathe_watch_draw(lathe_canvas *c, const lathe_run_view *v, int32_t is_live)
{
    painter p = {.c = c, .v = v, .pulse = lathe_run_pulse(v), .is_live = is_live};
    draw_head(&p);
    draw_parts(&p);
    draw_progress(&p);
    draw_figures(&p);
    draw_memory(&p);
    const lathe_status status = draw_plots(&p);
    draw_foot(&p);
    lathe_arena_fini(&p.arena);
    return status;
}

/* Draws the curves of the report. */
#include <math.h>
#include <string.h>

#include "view/html.h"
#include "view/report.h"
#include "view/svg_plot.h"

enum { POINTS = 360, MAX_CURVES = 4 };

/* One plot; draws those of its keys that the run has. */
typedef struct row {
    const char *title;
    const char *keys[MAX_CURVES], *labels[MAX_CURVES];
    int32_t color, unit, from_zero, is_wide;
} row;

static const row rows[] = {
    {"Loss", {"loss", "eval_loss"}, {"training", "validation"}, 0, LATHE_UNIT_NONE, 0, 1},
    {"Learning rate", {"lr"}, {NULL}, 3, LATHE_UNIT_NONE, 1, 0},
    {"Gradient norm", {"grad_norm"}, {NULL}, 2, LATHE_UNIT_NONE, 1, 0},
    {"Parameter norm", {"param_norm"}, {NULL}, 4, LATHE_UNIT_NONE, 0, 0},
    {"Update over parameter norm", {"update_ratio"}, {NULL}, 5, LATHE_UNIT_NONE, 1, 0},
    {"Token accuracy", {"eval_token_accuracy"}, {NULL}, 2, LATHE_UNIT_SHARE, 0, 0},
    {"Bits per byte", {"eval_bits_per_byte"}, {NULL}, 0, LATHE_UNIT_NONE, 0, 0},
    {"Calibration error (ECE)", {"eval_ece"}, {NULL}, 5, LATHE_UNIT_SHARE, 1, 0},
    {"Loss scale", {"loss_scale"}, {NULL}, 4, LATHE_UNIT_NONE, 1, 0},
    {"Losses of the routers",
     {"router_aux_loss", "router_z_loss"},
     {"balance", "z"},
     0,
     LATHE_UNIT_NONE,
     1,
     0},
    {"Load of the most popular expert over the mean",
     {"router_max_load"},
     {NULL},
     2,
     LATHE_UNIT_NONE,
     1,
     0},
    {"Entropy of the routers", {"router_entropy"}, {NULL}, 4, LATHE_UNIT_NONE, 1, 0},
    {"Experts without a token", {"router_dead_experts"}, {NULL}, 5, LATHE_UNIT_NONE, 1, 0},
    {"Tokens per second", {"tokens_per_s"}, {NULL}, 0, LATHE_UNIT_NONE, 1, 0},
    {"Share of this machine's peak", {"share_of_peak"}, {NULL}, 2, LATHE_UNIT_SHARE, 1, 0},
    {"Memory in use",
     {"memory_bytes", "memory_peak_bytes"},
     {"now", "peak"},
     3,
     LATHE_UNIT_BYTES,
     1,
     0},
    {"Micro-batches of a step, by rank",
     {"ranks_slowest_seconds", "ranks_fastest_seconds"},
     {"slowest", "fastest"},
     1,
     LATHE_UNIT_SECONDS,
     1,
     0},
    {"Bytes that rank 0 sends", {"ranks_bytes_sent"}, {NULL}, 3, LATHE_UNIT_BYTES, 1, 0},
    {"Stall of checkpoints", {"checkpoint_stall_seconds"}, {NULL}, 1, LATHE_UNIT_SECONDS, 1, 0},
};

static lathe_status add_curve(const lathe_run_view *v, const row *r, int32_t i, lathe_arena *arena,
                              lathe_plot *plot, lathe_curve *curves)
{
    const lathe_series *s = r->keys[i] ? lathe_run_view_series(v, r->keys[i]) : NULL;
    if (s == NULL)
        return LATHE_OK;
    lathe_curve *c = &curves[plot->n_curves++];
    LATHE_TRY(lathe_series_curve(s, POINTS, arena, c));
    c->label = r->labels[i];
    c->color = r->color + i;
    c->is_marks =
        strncmp(r->keys[i], "eval_", 5) == 0 || strcmp(r->keys[i], "checkpoint_stall_seconds") == 0;
    return LATHE_OK;
}

static lathe_status put_row(const lathe_run_view *v, const row *r, lathe_buffer *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_curve curves[MAX_CURVES];
    lathe_plot plot = {.title = r->title,
                       .curves = curves,
                       .unit = r->unit,
                       .x_end = (double)v->step,
                       .from_zero = r->from_zero};
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; status == LATHE_OK && i < MAX_CURVES; i++)
        status = add_curve(v, r, i, &arena, &plot, curves);
    if (status == LATHE_OK && plot.n_curves > 0) {
        lathe_buffer_printf(out, "<div class=\"card%s\">", r->is_wide ? " wide" : "");
        if (r->is_wide)
            lathe_svg_plot_wide(out, &plot, 330);
        else
            lathe_svg_plot(out, &plot, 520, 230);
        lathe_buffer_puts(out, "</div>\n");
    }
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe__report_curves(const lathe_run_view *v, lathe_buffer *out)
{
    lathe_buffer_puts(out, "<section id=\"curves\"><h2>Curves</h2><div class=\"grid\">\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        LATHE_TRY(put_row(v, &rows[i], out));
    lathe_buffer_puts(out, "</div></section>\n");
    return LATHE_OK;
}

/* ---- where the time of a step is spent ---- */

enum { N_PHASES = 5 };
static const char *const phase_keys[N_PHASES - 1] = {"data_seconds", "forward_seconds",
                                                     "backward_seconds", "optimizer_seconds"};
static const char *const phase_names[N_PHASES] = {"data", "forward", "backward", "optimizer",
                                                  "other"};
static const int32_t phase_colors[N_PHASES] = {4, 0, 3, 2, 5};

/* Stacks the phases as areas up to the whole step. All have points at the same steps, because they
 * are in the same metrics lines. */
static lathe_status stack_phases(const lathe_run_view *v, const lathe_series *whole,
                                 lathe_arena *arena, lathe_curve *curves, int32_t *out_n)
{
    lathe_curve all;
    LATHE_TRY(lathe_series_curve(whole, POINTS, arena, &all));
    double *below = lathe_arena_alloc(arena, (all.n + 1) * (int64_t)sizeof *below);
    if (below == NULL)
        return LATHE_E_NOMEM;
    *out_n = 0;
    for (int32_t p = 0; p < N_PHASES; p++) {
        const lathe_series *s = p < N_PHASES - 1 ? lathe_run_view_series(v, phase_keys[p]) : whole;
        lathe_curve phase;
        if (s == NULL || s->n != whole->n)
            continue;
        LATHE_TRY(lathe_series_curve(s, POINTS, arena, &phase));
        double *top = lathe_arena_alloc(arena, (all.n + 1) * (int64_t)sizeof *top);
        if (top == NULL)
            return LATHE_E_NOMEM;
        double mean = 0.0;
        for (int32_t i = 0; i < all.n; i++) {
            const double rest = p == N_PHASES - 1 ? phase.y[i] - below[i] : phase.y[i];
            top[i] = below[i] + fmax(0.0, rest);
            mean += fmax(0.0, rest) / (double)all.n;
        }
        curves[(*out_n)++] = (lathe_curve){.label = phase_names[p],
                                           .x = all.x,
                                           .y = top,
                                           .lo = below,
                                           .hi = top,
                                           .n = all.n,
                                           .color = phase_colors[p],
                                           .last = mean};
        below = top;
    }
    return LATHE_OK;
}

static void put_phase_bar(const lathe_curve *curves, int32_t n, lathe_buffer *out)
{
    double sum = 0.0;
    char text[32];
    for (int32_t i = 0; i < n; i++)
        sum += curves[i].last;
    lathe_buffer_puts(out, "<div class=\"card wide\"><h3>Mean step</h3><div class=\"bar\">");
    for (int32_t i = 0; i < n; i++)
        if (curves[i].last > 5e-4 * sum) /* a thinner area would only look like a gap */
            lathe_buffer_printf(out, "<i style=\"width:%.2f%%;background:var(--c%d)\"></i>",
                                sum > 0.0 ? 100.0 * curves[i].last / sum : 0.0, curves[i].color);
    lathe_buffer_puts(out, "</div><div class=\"phases\">");
    for (int32_t i = 0; i < n; i++) {
        lathe_axis_text(curves[i].last, 0.0, LATHE_UNIT_SECONDS, text, sizeof text);
        lathe_buffer_printf(
            out,
            "<span><span class=\"swatch\" style=\"background:var(--c%d)\"></span>%s "
            "<b>%s</b> <span class=\"quiet\">%.1f%%</span></span>",
            curves[i].color, curves[i].label, text, sum > 0.0 ? 100.0 * curves[i].last / sum : 0.0);
    }
    lathe_buffer_puts(out, "</div></div>\n");
}

lathe_status lathe__report_time(const lathe_run_view *v, lathe_buffer *out)
{
    const lathe_series *whole = lathe_run_view_series(v, "step_seconds");
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_curve curves[N_PHASES];
    lathe_plot plot = {.title = "Seconds of a step",
                       .curves = curves,
                       .unit = LATHE_UNIT_SECONDS,
                       .from_zero = 1,
                       .is_stacked = 1};
    if (whole == NULL)
        return LATHE_OK;
    const lathe_status status = stack_phases(v, whole, &arena, curves, &plot.n_curves);
    if (status == LATHE_OK) {
        lathe_buffer_puts(out, "<section id=\"time\"><h2>Time</h2><div class=\"grid\">\n");
        put_phase_bar(curves, plot.n_curves, out);
        lathe_buffer_puts(out, "<div class=\"card wide\">");
        lathe_svg_plot_wide(out, &plot, 240);
        lathe_buffer_puts(out, "</div></div></section>\n");
    }
    lathe_arena_fini(&arena);
    return status;
}

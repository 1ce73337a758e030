/* lathe plot schedule: shows the learning rate over a run before it runs. Schedulers count steps
 * from 0; printed steps count from 1, as in training. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/output_file.h"
#include "base/print.h"
#include "base/toml.h"
#include "cmd/plan/plan_commands.h"
#include "cmd/plan/schedule_curve.h"
#include "optim/group_settings.h"
#include "plug/schema_check.h"
#include "view/canvas.h"
#include "view/svg_plot.h"
#include "view/terminal.h"
#include "view/wrap.h"

static const lathe_option options[] = {
    {"-o, --output", "FILE.svg",
     "also draw the curve as SVG (\"-\": print only the SVG, on stdout)"},
    {"--size", "WxH", "width and height of the SVG, in its units (default 860x300)"},
    {"--steps", "N", "length of the run, instead of train.max_steps"},
    {"--json", NULL,
     "print an array of {step, lr}, steps counted from 1: every step up to 10,000, otherwise "
     "evenly spaced steps"},
};

enum {
    JSON_POINTS = 10000,
    TERMINAL_POINTS = 4000,
    SVG_POINTS = 1200,
    MIN_SIZE = 160, /* smaller plots have no room for title and axes */
    MAX_SIZE = 10000,
    MAX_WIDTH = 120, /* width of the curve in a terminal, in cells */
    MAX_HEIGHT = 20,
    MIN_HEIGHT = 8
};
#define MAX_STEPS 1000000000000 /* far more than any run, and too few to overflow */

/* The values of the options. */
typedef struct request {
    const char *path; /* NULL: no SVG */
    int64_t steps;    /* 0: train.max_steps */
    int width, height, json;
} request;

enum { WIDE = 60 }; /* columns; with fewer, titles are short and texts are on separate lines */

static int is_narrow(void)
{
    const int32_t columns = lathe_wrap_columns();
    return columns > 0 && columns < WIDE;
}

/* Draws at most max points of the curve. */
static lathe_status
with_plot(const lathe_schedule_curve *c, const request *r, int64_t max, lathe_buffer *out,
          lathe_status (*draw)(const lathe_plot *plot, const request *r, lathe_buffer *out))
{
    const int64_t n = c->total < max ? c->total : max;
    char title[128];
    double *x = malloc(2 * (size_t)n * sizeof *x);
    if (!x)
        return lathe_error(LATHE_E_NOMEM, "no memory for %lld points", (long long)n);
    double *y = x + n;
    for (int64_t k = 0; k < n; k++) {
        const int64_t step = lathe_schedule_spaced_step(c->total, n, k);
        x[k] = (double)step + 1.0;
        y[k] = lathe_schedule_curve_at(c, step);
    }
    (void)snprintf(title, sizeof title, "%s%s", is_narrow() && !r->path ? "" : "learning rate, ",
                   c->scheduler.component->plugin->name);
    const lathe_curve curve = {.label = "peak", .x = x, .y = y, .n = (int32_t)n, .last = c->peak};
    const lathe_plot plot = {
        .title = title, .curves = &curve, .n_curves = 1, .x_end = (double)c->total, .from_zero = 1};
    const lathe_status status = draw(&plot, r, out);
    free(x);
    return status != LATHE_OK ? status : out->status;
}

static lathe_status draw_svg(const lathe_plot *plot, const request *r, lathe_buffer *out)
{
    lathe_svg_file(out, plot, r->width, r->height);
    return LATHE_OK;
}

static lathe_status draw_terminal(const lathe_plot *plot, const request *r, lathe_buffer *out)
{
    (void)r;
    const int utf8 = lathe_terminal_is_utf8();
    const int colors = lathe_terminal_is_screen() && lathe_terminal_has_colors();
    lathe_canvas canvas;
    int32_t width, height;
    lathe_terminal_size(&width, &height);
    width = width > MAX_WIDTH ? MAX_WIDTH : width;
    height = height / 2 > MAX_HEIGHT ? MAX_HEIGHT : height / 2;
    height = height < MIN_HEIGHT ? MIN_HEIGHT : height;
    LATHE_TRY(lathe_canvas_init(&canvas, width, height, utf8));
    lathe_canvas_plot(&canvas, 0, 0, width, height, plot);
    lathe_canvas_write(&canvas, colors, "\n", out);
    lathe_canvas_fini(&canvas);
    return LATHE_OK;
}

static void put_keys(const lathe_instance *instance, lathe_buffer *b)
{
    const lathe_plugin *p = instance->component->plugin;
    for (int32_t i = 0; i < p->n_fields; i++) {
        if (!instance->values[i].is_set)
            continue;
        lathe_buffer_printf(b, "  %-17s ", p->fields[i].key);
        lathe_value_json(&instance->values[i], b);
        lathe_buffer_puts(b, instance->values[i].is_explicit ? "\n" : "  (default)\n");
    }
}

/* Prints the groups of parameters that have their own rate, which is proportional to the curve. */
static void put_groups(const lathe_schedule_curve *c, lathe_buffer *b)
{
    lathe_group_settings list[LATHE_MAX_GROUPS];
    const int64_t n = lathe_group_settings_read(c->config, list);
    for (int64_t i = 0; i < n && i < LATHE_MAX_GROUPS; i++) {
        char number[24];
        (void)snprintf(number, sizeof number, "%d", (int)i + 1);
        if (!isnan(list[i].lr) && c->base_lr > 0.0)
            lathe_buffer_printf(b, "group %-13s base rate %.6g: the same curve, times %.6g\n",
                                list[i].name ? list[i].name : number, list[i].lr,
                                list[i].lr / c->base_lr);
    }
}

static lathe_status put_figures(const lathe_schedule_curve *c, lathe_buffer *b)
{
    const lathe_plugin *scheduler = c->scheduler.component->plugin;
    lathe_buffer_printf(b, "\nscheduler           %s: ", scheduler->name);
    lathe_wrap_text(b, scheduler->summary, 22 + (int32_t)strlen(scheduler->name), 20,
                    is_narrow() ? 0 : lathe_wrap_columns());
    lathe_buffer_puts(b, "\n");
    put_keys(&c->scheduler, b);
    lathe_buffer_printf(b, "base rate           %.6g  (optimizer.lr of %s)\n", c->base_lr,
                        c->optimizer.component->plugin->name);
    put_groups(c, b);
    lathe_buffer_printf(b, "steps               %lld\n", (long long)c->total);
    lathe_buffer_printf(b, "first rate          %.6g\n", c->first);
    lathe_buffer_printf(b, "peak rate           %.6g at step %lld\n", c->peak,
                        (long long)c->peak_step + 1);
    lathe_buffer_printf(b, "last rate           %.6g at step %lld\n", c->last, (long long)c->total);
    lathe_buffer_printf(b, "least rate          %.6g at step %lld\n", c->least,
                        (long long)c->least_step + 1);
    if (c->warm_up_end > 0)
        lathe_buffer_printf(b, "warm-up seen        %lld step%s: the rate rises up to step %lld\n",
                            (long long)c->warm_up_end, c->warm_up_end == 1 ? "" : "s",
                            (long long)c->warm_up_end + 1);
    else
        lathe_buffer_puts(b, "warm-up seen        none\n");
    if (c->n_computed < c->total)
        lathe_buffer_printf(b, "Peak and least are those of %lld evenly spaced steps.\n",
                            (long long)c->n_computed);
    if (c->reads_metrics)
        lathe_buffer_printf(b,
                            "%s looks at a metric while the run trains; the curve is the one "
                            "without its changes.\n",
                            scheduler->name);
    return b->status;
}

/* Prints the figures in short lines without columns, for a narrow terminal. */
static lathe_status put_narrow_figures(const lathe_schedule_curve *c, lathe_buffer *out)
{
    lathe_buffer wide = LATHE_BUFFER_INIT;
    const lathe_status status = put_figures(c, &wide);
    char *line = wide.data, *end;
    for (; status == LATHE_OK && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        const int32_t lead = (int32_t)strspn(line, " ");
        *end = '\0';
        lathe_buffer_printf(out, "%*s", lead, "");
        lathe_wrap_text(out, line + lead, lead, 4, lathe_wrap_columns());
        lathe_buffer_puts(out, "\n");
    }
    lathe_buffer_fini(&wide);
    return status != LATHE_OK ? status : out->status;
}

static lathe_status put_json(const lathe_schedule_curve *c, lathe_buffer *b)
{
    const int64_t n = c->total < JSON_POINTS ? c->total : JSON_POINTS;
    for (int64_t k = 0; k < n; k++) {
        const int64_t step = lathe_schedule_spaced_step(c->total, n, k);
        lathe_buffer_printf(b, "%s{\"step\": %lld, \"lr\": ", k ? ",\n " : "[",
                            (long long)step + 1);
        lathe_buffer_json_double(b, lathe_schedule_curve_at(c, step));
        lathe_buffer_puts(b, "}");
    }
    lathe_buffer_puts(b, "]\n");
    return b->status;
}

static lathe_status read_size(const char *text, request *r)
{
    int end = 0;
    r->width = 860;
    r->height = 300;
    if (text && (sscanf(text, "%5dx%5d%n", &r->width, &r->height, &end) != 2 || text[end] != '\0' ||
                 r->width < MIN_SIZE || r->width > MAX_SIZE || r->height < MIN_SIZE ||
                 r->height > MAX_SIZE))
        return lathe_error(LATHE_E_ARG, "--size is '%s', expected WIDTHxHEIGHT, each from %d to %d",
                           text, MIN_SIZE, MAX_SIZE);
    return LATHE_OK;
}

/* Reads the options before a run file is opened. */
static lathe_status read_request(const lathe_args *args, request *r)
{
    const char *path = lathe_args_value(args, "--output"), *size = lathe_args_value(args, "--size");
    const size_t n = path ? strlen(path) : 0;
    *r = (request){.path = path, .json = lathe_args_value(args, "--json") != NULL};
    LATHE_TRY(lathe_args_int(args, "--steps", 1, MAX_STEPS, 0, &r->steps));
    LATHE_TRY(read_size(size, r));
    if (size && !path)
        return lathe_error(LATHE_E_ARG, "--size is that of an SVG: -o FILE.svg is missing");
    if (path && r->json && strcmp(path, "-") == 0)
        return lathe_error(LATHE_E_ARG, "--json and -o - both want stdout");
    if (path && strcmp(path, "-") != 0 && (n < 5 || strcmp(path + n - 4, ".svg") != 0))
        return lathe_error(LATHE_E_ARG, "-o is '%s', expected a name that ends in .svg", path);
    return LATHE_OK;
}

static lathe_status write_svg(const lathe_schedule_curve *c, const request *r)
{
    lathe_buffer svg = LATHE_BUFFER_INIT;
    lathe_status status = with_plot(c, r, SVG_POINTS, &svg, draw_svg);
    if (status == LATHE_OK && strcmp(r->path, "-") == 0)
        lathe_print_output(stdout, svg.data, svg.len);
    else if (status == LATHE_OK)
        status = lathe_file_write_output(r->path, svg.data, svg.len);
    lathe_buffer_fini(&svg);
    return status;
}

static lathe_status show(const lathe_schedule_curve *c, const request *r)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_status status = r->path ? write_svg(c, r) : LATHE_OK;
    if (status != LATHE_OK || (r->path && strcmp(r->path, "-") == 0))
        return status;
    if (r->json) {
        status = put_json(c, &text);
    } else {
        status = with_plot(c, r, TERMINAL_POINTS, &text, draw_terminal);
        lathe_print_raw(stdout, text.data, text.len); /* a canvas has printable glyphs alone */
        text.len = 0;
        if (status == LATHE_OK)
            status = is_narrow() ? put_narrow_figures(c, &text) : put_figures(c, &text);
        if (r->path)
            lathe_buffer_printf(&text, "written             %s\n", r->path);
        status = status != LATHE_OK ? status : text.status;
    }
    if (status == LATHE_OK)
        lathe_print_bytes(stdout, text.data, text.len);
    lathe_buffer_fini(&text);
    return status;
}

static int run_command(const lathe_args *args)
{
    lathe_schedule_curve curve = {0};
    request r;
    lathe_status status = read_request(args, &r);
    if (status == LATHE_OK)
        status = lathe_schedule_curve_init(&curve, args->words[0], &args->edits, r.steps);
    if (status == LATHE_OK)
        status = show(&curve, &r);
    const int code = status == LATHE_OK ? LATHE_EXIT_OK : lathe_args_fail(args, status);
    lathe_schedule_curve_fini(&curve);
    return code;
}

const lathe_command lathe_cmd_plot_schedule = {
    .name = "plot schedule",
    .arguments = "RUN.toml [-o FILE.svg]",
    .summary = "plot the learning rate over a run and print its figures, without running",
    .details = "Reads only the run file, no data and no weights. The curve starts from the lr\n"
               "of the optimizer; a parameter group with its own lr follows the same curve,\n"
               "scaled. A schedule that depends on a metric (reduce_on_plateau) is drawn\n"
               "without the effect of the metric.",
    .options = options,
    .n_options = (int32_t)(sizeof options / sizeof options[0]),
    .min_words = 1,
    .max_words = 1,
    .takes_overrides = 1,
    .run = run_command,
};

/* Draws plots as SVG. */
#include "view/svg_plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "view/html.h"

/* Below a width of NARROW, a legend of more than two curves does not fit beside the title and is
 * omitted. */
enum { MAX_TICKS = 16, TOP = 36, BOTTOM = 26, RIGHT = 14, MAX_LEGEND = 8, NARROW = 480 };

/* The widths of texts are unknown here; this is the width of a digit in wide fonts, at 12 units. */
static const double DIGIT = 7.4;

typedef struct frame {
    lathe_buffer *out;
    double left, right, top, bottom; /* of the inner rectangle */
    double x[2], y[2];
} frame;

void lathe_svg_style(lathe_buffer *out)
{
    lathe_buffer_puts(
        out,
        ":root{--c0:#2563d9;--c1:#d4500c;--c2:#0a8066;--c3:#7c45c8;--c4:#a86a08;--c5:#bf2459;--c6:#"
        "5a7184;--c7:#64801a;"
        "--ink:#1b1f26;--quiet:#667080;--line:#e3e6eb;--card:#fff}\n"
        "@media(prefers-color-scheme:dark){:root{--c0:#7fabff;--c1:#ff9a66;--c2:#4fd0a8;--c3:#"
        "bd9bff;"
        "--c4:#efc050;--c5:#ff82b0;--c6:#9db4c9;--c7:#b4cf62;--ink:#e8eaf0;--quiet:#98a1b3;--line:#"
        "2b313d;--card:#171b23}}\n"
        "svg.plot{display:block;width:100%;height:auto;font:12px system-ui,-apple-system,"
        "\"Segoe UI\",Roboto,\"Liberation Sans\",sans-serif;font-variant-numeric:tabular-nums}\n"
        "svg.plot .t{font-weight:600;font-size:14px;fill:var(--ink)}"
        "svg.plot .v{fill:var(--ink)}svg.plot .l{fill:var(--quiet)}"
        "svg.plot .g{stroke:var(--line);stroke-width:1;shape-rendering:crispEdges}\n");
    for (int i = 0; i < LATHE_SVG_COLORS; i++)
        lathe_buffer_printf(out,
                            "svg.plot .k%d{fill:none;stroke:var(--c%d);stroke-width:1.6;"
                            "stroke-linejoin:round;stroke-linecap:round}"
                            "svg.plot .b%d{fill:var(--c%d);opacity:.2}"
                            "svg.plot .s%d{fill:var(--c%d);opacity:.82}"
                            "svg.plot .m%d{fill:var(--c%d);stroke:var(--card);stroke-width:1.5}\n",
                            i, i, i, i, i, i, i, i);
}

static double at_x(const frame *f, double v)
{
    return f->left + (v - f->x[0]) / (f->x[1] - f->x[0]) * (f->right - f->left);
}

/* Limits values to near the frame: extremely large coordinates break some viewers. */
static double at_y(const frame *f, double v)
{
    const double y = f->bottom - (v - f->y[0]) / (f->y[1] - f->y[0]) * (f->bottom - f->top);
    return fmax(f->top - 4.0, fmin(y, f->bottom + 4.0));
}

static void put_text(const frame *f, double x, double y, const char *class, const char *anchor,
                     const char *text)
{
    lathe_buffer_printf(f->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x,
                        y, class, anchor);
    lathe_html_text(f->out, text);
    lathe_buffer_puts(f->out, "</text>");
}

static int color_of(const lathe_curve *c)
{
    return (int)(c->color % LATHE_SVG_COLORS);
}

/* Title at the left, legend at the right, as one text that the viewer lays out with its fonts. */
static void put_head(const frame *f, const lathe_plot *plot, int32_t width)
{
    char value[32];
    put_text(f, 2.0, 17.0, "t", "start", plot->title ? plot->title : "");
    const int32_t room = width < NARROW ? 2 : MAX_LEGEND;
    const int32_t n = plot->n_curves <= room ? plot->n_curves : width < NARROW ? 0 : MAX_LEGEND;
    lathe_buffer_printf(f->out, "<text x=\"%d\" y=\"17\" class=\"v\" text-anchor=\"end\">",
                        width - RIGHT);
    for (int32_t i = 0; i < n; i++) {
        const lathe_curve *c = &plot->curves[i];
        lathe_axis_text(c->last, 0.0, plot->unit, value, sizeof value);
        lathe_buffer_printf(f->out, "<tspan%s fill=\"var(--c%d)\" font-weight=\"700\">%s</tspan> ",
                            i > 0 ? " dx=\"16\"" : "", color_of(c),
                            c->is_marks        ? "\xE2\x97\x8F" /* a disc */
                            : plot->is_stacked ? "\xE2\x96\xA0" /* a square */
                                               : "\xE2\x80\x94" /* a dash */);
        lathe_html_text(f->out, c->label);
        lathe_html_printf(f->out, "%s%s", c->label ? " " : "", value);
    }
    lathe_buffer_puts(f->out, "</text>");
}

static void put_axes(frame *f, const lathe_plot *plot, int32_t width, int32_t height)
{
    double ticks[MAX_TICKS], step = 0.0;
    char labels[MAX_TICKS][24];
    const int32_t max_y = height / 44 < 3 ? 3 : height / 44 > 8 ? 8 : height / 44;
    lathe_axis_widen(f->y, max_y, plot->unit);
    int32_t n = lathe_axis_ticks(f->y[0], f->y[1], max_y + 2, plot->unit, ticks, &step);
    size_t widest = 1;
    for (int32_t i = 0; i < n; i++) {
        lathe_axis_text(ticks[i], step, plot->unit, labels[i], sizeof labels[i]);
        widest = strlen(labels[i]) > widest ? strlen(labels[i]) : widest;
    }
    f->left = DIGIT * (double)widest + 12.0;
    f->right = (double)width - RIGHT;
    f->top = TOP;
    f->bottom = (double)height - BOTTOM;
    for (int32_t i = 0; i < n; i++) {
        const double y = at_y(f, ticks[i]);
        lathe_buffer_printf(f->out,
                            "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" class=\"g\"/>",
                            f->left, f->right, y, y);
        put_text(f, f->left - 8.0, y + 4.0, "l", "end", labels[i]);
    }
    n = lathe_axis_ticks(f->x[0], f->x[1], width / 90, LATHE_UNIT_NONE, ticks, &step);
    for (int32_t i = 0; i < n; i++) {
        char label[24];
        lathe_axis_text(ticks[i], step, LATHE_UNIT_NONE, label, sizeof label);
        const double x = at_x(f, ticks[i]);
        const int at_end = x > f->right - 3.0 * DIGIT;
        put_text(f, at_end ? f->right + 4.0 : x, f->bottom + 18.0, "l", at_end ? "end" : "middle",
                 label);
    }
}

/* The area between hi (left to right) and lo (back). */
static void put_band(const frame *f, const lathe_curve *c, const char *class)
{
    lathe_buffer_printf(f->out, "<path class=\"%s%d\" d=\"M", class, color_of(c));
    for (int32_t i = 0; i < c->n; i++)
        lathe_buffer_printf(f->out, "%.1f,%.1f ", at_x(f, c->x[i]), at_y(f, c->hi[i]));
    for (int32_t i = c->n; i-- > 0;)
        lathe_buffer_printf(f->out, "%.1f,%.1f ", at_x(f, c->x[i]), at_y(f, c->lo[i]));
    lathe_buffer_puts(f->out, "Z\"/>");
}

static void put_line(const frame *f, const lathe_curve *c)
{
    int joined = 0;
    lathe_buffer_printf(f->out, "<path class=\"k%d\" d=\"", color_of(c));
    for (int32_t i = 0; i < c->n; i++) {
        if (isfinite(c->y[i]))
            lathe_buffer_printf(f->out, "%s%.1f,%.1f ", joined ? "" : "M", at_x(f, c->x[i]),
                                at_y(f, c->y[i]));
        joined = isfinite(c->y[i]);
    }
    lathe_buffer_puts(f->out, "\"/>");
}

/* Returns 1 if the curve has a spread besides the line. */
static int has_spread(const lathe_curve *c)
{
    for (int32_t i = 0; c->lo && c->hi && i < c->n; i++)
        if (c->hi[i] > c->lo[i])
            return 1;
    return 0;
}

static void put_curve(const frame *f, const lathe_plot *plot, const lathe_curve *c)
{
    char value[32];
    if (plot->is_stacked) {
        put_band(f, c, "s");
        return;
    }
    if (has_spread(c) && !c->is_marks)
        put_band(f, c, "b");
    put_line(f, c);
    for (int32_t i = 0; c->is_marks && i < c->n; i++) {
        if (!isfinite(c->y[i]))
            continue;
        lathe_axis_text(c->y[i], 0.0, plot->unit, value, sizeof value);
        lathe_buffer_printf(f->out,
                            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" class=\"m%d\"><title>%.0f: "
                            "%s</title></circle>",
                            at_x(f, c->x[i]), at_y(f, c->y[i]), c->n > 60 ? "2.5" : "4",
                            color_of(c), c->x[i], value);
    }
}

static void put_body(lathe_buffer *out, const lathe_plot *plot, int32_t width, int32_t height)
{
    frame f = {.out = out};
    put_head(&f, plot, width);
    if (!lathe_plot_range(plot, f.x, f.y)) {
        put_text(&f, width / 2, height / 2, "l", "middle", "nothing recorded");
        return;
    }
    put_axes(&f, plot, width, height);
    for (int32_t i = 0; i < plot->n_curves; i++)
        if (plot->curves[i].n > 0)
            put_curve(&f, plot, &plot->curves[i]);
}

void lathe_svg_plot(lathe_buffer *out, const lathe_plot *plot, int32_t width, int32_t height)
{
    lathe_buffer_printf(out, "<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                        width, height);
    lathe_html_text(out, plot->title);
    lathe_buffer_puts(out, "\">");
    put_body(out, plot, width, height);
    lathe_buffer_puts(out, "</svg>\n");
}

void lathe_svg_plot_wide(lathe_buffer *out, const lathe_plot *plot, int32_t height)
{
    enum { LARGE = 1080, SMALL = 380 };
    lathe_buffer_puts(out, "<div class=\"large\">");
    lathe_svg_plot(out, plot, LARGE, height);
    lathe_buffer_puts(out, "</div><div class=\"small\">");
    lathe_svg_plot(out, plot, SMALL, 230);
    lathe_buffer_puts(out, "</div>\n");
}

void lathe_svg_file(lathe_buffer *out, const lathe_plot *plot, int32_t width, int32_t height)
{
    lathe_buffer_printf(out,
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" width=\"%d\" "
                        "height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n<style>\n",
                        width, height, width, height);
    lathe_svg_style(out);
    lathe_buffer_puts(out,
                      "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"var(--card)\"/>\n");
    put_body(out, plot, width, height);
    lathe_buffer_puts(out, "\n</svg>\n");
}

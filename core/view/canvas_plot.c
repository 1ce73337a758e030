/* Plots on a canvas (declared in canvas.h): braille dots, 2 by 4 of a cell, or ASCII characters.
 *
 *   loss                          - train 3.32   o eval 3.69
 *   8.0 | ..
 *   6.0 |   ''-..
 *   4.0 |        ''''---.......
 *       0        100       200
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "view/canvas.h"

enum { MAX_TICKS = 16, LABEL = 16 };

/* The inner rectangle, in cells and dots, and the value ranges that it shows. */
typedef struct frame {
    lathe_canvas *c;
    int32_t x, y, width, height; /* cells */
    int32_t rx, ry;              /* dots per cell */
    double xr[2], yr[2];
} frame;

/* Bit of the dot (x, y) of a braille cell; U+2800 + bits. */
static uint32_t braille_bit(int32_t x, int32_t y)
{
    static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    return bits[y][x];
}

static void set_dot(const frame *f, int32_t px, int32_t py, int32_t style, uint32_t ascii)
{
    if (px < 0 || py < 0 || px >= f->width * f->rx || py >= f->height * f->ry)
        return;
    const int32_t x = f->x + px / f->rx, y = f->y + py / f->ry;
    if (!f->c->is_unicode) {
        const uint32_t there = f->c->cells[y * f->c->width + x].glyph;
        if (ascii != ':' || there == ' ')
            lathe_canvas_put(f->c, x, y, style, ascii);
        return;
    }
    const uint32_t there = f->c->cells[y * f->c->width + x].glyph;
    const uint32_t bits = there >= 0x2800 && there < 0x2900 ? there : 0x2800;
    lathe_canvas_put(f->c, x, y, style, bits | braille_bit(px % f->rx, py % f->ry));
}

static int32_t dot_x(const frame *f, double v)
{
    const double n = (double)(f->width * f->rx - 1);
    return (int32_t)lround((v - f->xr[0]) / (f->xr[1] - f->xr[0]) * n);
}

/* Row of a value. Values outside the range give a row just outside the frame, never one that
 * overflows. */
static int32_t dot_y(const frame *f, double v)
{
    const double n = (double)(f->height * f->ry - 1);
    const double at = (f->yr[1] - v) / (f->yr[1] - f->yr[0]) * n;
    return (int32_t)lround(fmax(-1.0, fmin(at, n + 1.0)));
}

static void line(const frame *f, int32_t x0, int32_t y0, int32_t x1, int32_t y1, int32_t style)
{
    const int32_t dx = abs(x1 - x0), dy = -abs(y1 - y0);
    const int32_t sx = x0 < x1 ? 1 : -1, sy = y0 < y1 ? 1 : -1;
    for (int32_t e = dx + dy;;) {
        set_dot(f, x0, y0, style, '*');
        if (x0 == x1 && y0 == y1)
            return;
        const int32_t twice = 2 * e;
        if (twice >= dy) {
            e += dy;
            x0 += sx;
        }
        if (twice <= dx) {
            e += dx;
            y0 += sy;
        }
    }
}

/* Draws the spread as every other dot, so that it is lighter than the line. */
static void draw_spread(const frame *f, const lathe_curve *c, int32_t style)
{
    for (int32_t i = 0; c->lo && i < c->n; i++) {
        const int32_t x = dot_x(f, c->x[i]);
        for (int32_t y = dot_y(f, c->hi[i]); y <= dot_y(f, c->lo[i]); y++)
            if (f->ry == 1 || ((x + y) & 1) == 0)
                set_dot(f, x, y, style, ':');
    }
}

static void draw_curve(const frame *f, const lathe_curve *c)
{
    const int32_t style = LATHE_STYLE_CURVE + c->color % (LATHE_N_STYLES - LATHE_STYLE_CURVE);
    if (!c->is_marks)
        draw_spread(f, c, style);
    for (int32_t i = 0; i < c->n; i++) {
        if (!isfinite(c->y[i]))
            continue;
        const int32_t x = dot_x(f, c->x[i]), y = dot_y(f, c->y[i]);
        const int joined = i > 0 && isfinite(c->y[i - 1]);
        if (c->is_marks)
            lathe_canvas_put(f->c, f->x + x / f->rx, f->y + y / f->ry, style,
                             f->c->is_unicode ? 0x25CF : 'o');
        else if (joined)
            line(f, dot_x(f, c->x[i - 1]), dot_y(f, c->y[i - 1]), x, y, style);
        else
            set_dot(f, x, y, style, '*');
    }
}

static void draw_title(lathe_canvas *c, int32_t x, int32_t y, int32_t width, const lathe_plot *plot)
{
    char legend[8][96], value[32];
    int32_t length = 0, n = plot->n_curves < 8 ? plot->n_curves : 8;
    for (int32_t i = 0; i < n; i++) {
        const lathe_curve *k = &plot->curves[i];
        lathe_axis_text(k->last, 0.0, plot->unit, value, sizeof value);
        (void)snprintf(legend[i], sizeof legend[i], "%s%s%s", k->label ? k->label : "",
                       k->label ? " " : "", value);
        length += (int32_t)strlen(legend[i]) + 4;
    }
    /* The legend of a single curve is beside the title, which is cut to make room. Several legends
     * are shown only if they fit beside the whole title. */
    const int32_t title = (int32_t)strlen(plot->title), least = width / 3;
    int32_t room = title + 1 + length <= width ? title : n == 1 ? width - length - 1 : width;
    if (room < title && room < least) {
        room = width;
        n = 0;
    }
    const int32_t after_title = lathe_canvas_text(c, x, y, LATHE_STYLE_BOLD, "%.*s",
                                                  room < title ? room : title, plot->title);
    int32_t at = x + width - length + 2;
    for (int32_t i = 0; i < n && at > after_title; i++) {
        const lathe_curve *k = &plot->curves[i];
        const int32_t style = LATHE_STYLE_CURVE + k->color % (LATHE_N_STYLES - LATHE_STYLE_CURVE);
        const uint32_t mark =
            k->is_marks ? (c->is_unicode ? 0x25CF : 'o') : (c->is_unicode ? 0x2501 : '-');
        lathe_canvas_put(c, at, y, style, mark);
        at = lathe_canvas_text(c, at + 2, y, LATHE_STYLE_PLAIN, "%s", legend[i]) + 2;
    }
}

/* Draws the labels left of the frame; the widest determines the frame's left edge and width. */
static void draw_y_axis(frame *f, int32_t x, int32_t width, int32_t unit)
{
    double ticks[MAX_TICKS], step = 0.0;
    char labels[MAX_TICKS][LABEL];
    const int32_t n =
        lathe_axis_ticks(f->yr[0], f->yr[1], f->height > 4 ? f->height / 2 : 2, unit, ticks, &step);
    int32_t widest = 1;
    for (int32_t i = 0; i < n; i++) {
        lathe_axis_text(ticks[i], step, unit, labels[i], LABEL);
        const int32_t length = (int32_t)strlen(labels[i]);
        widest = length > widest ? length : widest;
    }
    f->x = x + widest + 2;
    f->width = width - widest - 2;
    if (f->width < 4)
        return;
    for (int32_t row = 0; row < f->height; row++)
        lathe_canvas_put(f->c, f->x - 1, f->y + row, LATHE_STYLE_DIM,
                         f->c->is_unicode ? 0x2502 : '|');
    for (int32_t i = 0; i < n; i++) {
        const int32_t row = dot_y(f, ticks[i]) / f->ry;
        lathe_canvas_text(f->c, x + widest - (int32_t)strlen(labels[i]), f->y + row,
                          LATHE_STYLE_DIM, "%s", labels[i]);
        lathe_canvas_put(f->c, f->x - 1, f->y + row, LATHE_STYLE_DIM,
                         f->c->is_unicode ? 0x2524 : '+');
    }
}

static void draw_x_axis(const frame *f)
{
    double ticks[MAX_TICKS], step = 0.0;
    char label[LABEL];
    const int32_t n =
        lathe_axis_ticks(f->xr[0], f->xr[1], f->width / 12 + 1, LATHE_UNIT_NONE, ticks, &step);
    int32_t free_from = f->x - 1;
    for (int32_t i = 0; i < n; i++) {
        lathe_axis_text(ticks[i], step, LATHE_UNIT_NONE, label, LABEL);
        const int32_t length = (int32_t)strlen(label);
        int32_t at = f->x + dot_x(f, ticks[i]) / f->rx - length / 2;
        if (at + length > f->x + f->width)
            at = f->x + f->width - length;
        if (at < free_from)
            continue;
        lathe_canvas_text(f->c, at, f->y + f->height, LATHE_STYLE_DIM, "%s", label);
        free_from = at + length + 1;
    }
}

void lathe_canvas_plot(lathe_canvas *c, int32_t x, int32_t y, int32_t width, int32_t height,
                       const lathe_plot *plot)
{
    frame f = {.c = c, .y = y + 1, .height = height - 2};
    f.rx = c->is_unicode ? 2 : 1;
    f.ry = c->is_unicode ? 4 : 1;
    if (width < 16 || height < 4)
        return;
    c->right = x + width < c->width ? x + width : c->width;
    draw_title(c, x, y, width, plot);
    if (!lathe_plot_range(plot, f.xr, f.yr))
        lathe_canvas_text(c, x + 2, y + height / 2, LATHE_STYLE_DIM, "nothing yet");
    else
        draw_y_axis(&f, x, width, plot->unit);
    for (int32_t i = 0; f.width >= 4 && i < plot->n_curves; i++)
        draw_curve(&f, &plot->curves[i]);
    if (f.width >= 4)
        draw_x_axis(&f);
    c->right = c->width;
}

/* A grid of terminal cells that is drawn on and then written out, with or without colours. */
#ifndef LATHE_VIEW_CANVAS_H
#define LATHE_VIEW_CANVAS_H

#include "base/buffer.h"
#include "view/curve.h"

/* Styles. The terminal defines the colours, so they fit its light or dark theme. */
enum {
    LATHE_STYLE_PLAIN = 0,
    LATHE_STYLE_DIM = 1,
    LATHE_STYLE_BOLD = 2,
    LATHE_STYLE_GOOD = 3,
    LATHE_STYLE_WARN = 4,
    LATHE_STYLE_BAD = 5,
    LATHE_STYLE_CURVE = 6, /* + color of the curve, 0..5 */
    LATHE_N_STYLES = 12
};

typedef struct lathe_cell {
    uint32_t glyph; /* Unicode; 0: the right half of a wide character */
    int32_t style;
} lathe_cell;

typedef struct lathe_canvas {
    int32_t width, height;
    int32_t is_unicode; /* braille and box characters; 0: ASCII only */
    int32_t right;      /* text is cut at this column */
    lathe_cell *cells;  /* [height][width] */
} lathe_canvas;

/** Creates a blank canvas of at least 1 by 1, at most 1000 by 1000 cells. LATHE_E_NOMEM. */
lathe_status lathe_canvas_init(lathe_canvas *c, int32_t width, int32_t height, int32_t is_unicode);
void lathe_canvas_fini(lathe_canvas *c);

/** Puts one character; does nothing outside the canvas. */
void lathe_canvas_put(lathe_canvas *c, int32_t x, int32_t y, int32_t style, uint32_t glyph);

/** Writes UTF-8 text, cut at c->right. Control characters and characters that the canvas cannot
 *  show become '?'. Returns the column after the text. */
__attribute__((format(printf, 5, 6))) int32_t
lathe_canvas_text(lathe_canvas *c, int32_t x, int32_t y, int32_t style, const char *format, ...);

/** Draws a bar of `width` cells, filled up to `share` in [0, 1]. */
void lathe_canvas_bar(lathe_canvas *c, int32_t x, int32_t y, int32_t width, int32_t style,
                      double share);

/** Draws a plot in a rectangle: title and legend, y labels, curves, x labels. Draws nothing below
 *  16 by 4 cells. */
void lathe_canvas_plot(lathe_canvas *c, int32_t x, int32_t y, int32_t width, int32_t height,
                       const lathe_plot *plot);

/** Appends the rows as text without trailing blanks, each followed by `end`. with_colors: ANSI
 *  colours. */
void lathe_canvas_write(const lathe_canvas *c, int with_colors, const char *end, lathe_buffer *out);

#endif

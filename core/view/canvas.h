/* A grid of terminal cells that is drawn on and then written out, with colours or without. */
#ifndef LATHE_VIEW_CANVAS_H
#define LATHE_VIEW_CANVAS_H

#include "base/buffer.h"
#include "view/curve.h"

/* Styles. The colours are the terminal's own, so that its light or dark theme decides. */
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
    int32_t right;      /* text is cut here; width */
    lathe_cell *cells;  /* [height][width] */
} lathe_canvas;

/** A blank canvas. At least 1 by 1, at most 1000 by 1000. LATHE_E_NOMEM. */
lathe_status lathe_canvas_init(lathe_canvas *c, int32_t width, int32_t height, int32_t is_unicode);
void lathe_canvas_fini(lathe_canvas *c);

/** Puts one character; outside the canvas nothing happens. */
void lathe_canvas_put(lathe_canvas *c, int32_t x, int32_t y, int32_t style, uint32_t glyph);

/** Writes UTF-8 text, cut at c->right; control characters and what the canvas cannot show become
 *  '?'. Gives the column after it. */
__attribute__((format(printf, 5, 6))) int32_t
lathe_canvas_text(lathe_canvas *c, int32_t x, int32_t y, int32_t style, const char *format, ...);

/** A filled bar over width cells, share in [0, 1]. */
void lathe_canvas_bar(lathe_canvas *c, int32_t x, int32_t y, int32_t width, int32_t style,
                      double share);

/** Draws a plot into a rectangle: title and legend, y labels, curves, x labels. Below 16 by 4 cells
 *  nothing is drawn. */
void lathe_canvas_plot(lathe_canvas *c, int32_t x, int32_t y, int32_t width, int32_t height,
                       const lathe_plot *plot);

/** Appends the rows as text, blanks at their ends left out, each with `end`. with_colors: ANSI. */
void lathe_canvas_write(const lathe_canvas *c, int with_colors, const char *end, lathe_buffer *out);

#endif

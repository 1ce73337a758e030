/* Plots as SVG: inside a page, or as a file of their own. Colours are CSS variables --c0 .. --c7,
 * so that the reader's light or dark theme decides. */
#ifndef LATHE_VIEW_SVG_PLOT_H
#define LATHE_VIEW_SVG_PLOT_H

#include "base/buffer.h"
#include "view/curve.h"

enum { LATHE_SVG_COLORS = 8 };

/** Appends the rules that plots need: variables for both themes, and their classes. For a
 *  <style>. */
void lathe_svg_style(lathe_buffer *out);

/** Appends one <svg> element of width by height units; nothing but a note when it has no points. */
void lathe_svg_plot(lathe_buffer *out, const lathe_plot *plot, int32_t width, int32_t height);

/** Appends the plot twice, for wide and for narrow pages: elements of class "large" and "small", of
 *  which the page's style shows one. */
void lathe_svg_plot_wide(lathe_buffer *out, const lathe_plot *plot, int32_t height);

/** Appends a whole SVG file with the plot in it. */
void lathe_svg_file(lathe_buffer *out, const lathe_plot *plot, int32_t width, int32_t height);

#endif

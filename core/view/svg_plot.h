/* Plots as SVG, inside a page or as a file. Colours are CSS variables --c0 .. --c7, so that they
 * fit the viewer's light or dark theme. */
#ifndef LATHE_VIEW_SVG_PLOT_H
#define LATHE_VIEW_SVG_PLOT_H

#include "base/buffer.h"
#include "view/curve.h"

enum { LATHE_SVG_COLORS = 8 };

/** Appends the style rules that plots need, variables for both themes and classes, as the content
 *  of a <style> element. */
void lathe_svg_style(lathe_buffer *out);

/** Appends one <svg> element of width by height units; for a plot without points, a note
 *  instead. */
void lathe_svg_plot(lathe_buffer *out, const lathe_plot *plot, int32_t width, int32_t height);

/** Appends the plot twice, for wide and for narrow pages, as elements of class "large" and "small";
 *  the page's style shows one of them. */
void lathe_svg_plot_wide(lathe_buffer *out, const lathe_plot *plot, int32_t height);

/** Appends a whole SVG file with the plot. */
void lathe_svg_file(lathe_buffer *out, const lathe_plot *plot, int32_t width, int32_t height);

#endif

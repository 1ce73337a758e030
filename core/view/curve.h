/* Data of plots, for terminals (canvas_plot) and pages (svg_plot). */
#ifndef LATHE_VIEW_CURVE_H
#define LATHE_VIEW_CURVE_H

#include <stdint.h>

/** A curve of n points with ascending x. lo and hi: minimum and maximum around each point, or
 *  NULL. */
typedef struct lathe_curve {
    const char *label; /* NULL: none */
    const double *x, *y, *lo, *hi;
    int32_t n;
    int32_t color;    /* index in the palette: 0, 1, ... */
    int32_t is_marks; /* separate points, joined by at most a thin line */
    double last;      /* newest value, shown in the legend */
} lathe_curve;

/* Unit of an axis. */
enum {
    LATHE_UNIT_NONE = 0,
    LATHE_UNIT_SHARE = 1,
    LATHE_UNIT_BYTES = 2,
    LATHE_UNIT_SECONDS = 3,
    LATHE_UNIT_COUNT = 4
};

typedef struct lathe_plot {
    const char *title;
    const lathe_curve *curves;
    int32_t n_curves;
    int32_t unit;       /* LATHE_UNIT_* of y */
    double x_end;       /* x extends from 0 at least to here; 0: only to the last point */
    int32_t from_zero;  /* y begins at 0 */
    int32_t is_stacked; /* curves are areas lo..hi, stacked on each other (pages only) */
} lathe_plot;

/** The range of all finite points. Widens y if it is empty; starts x at 0 if it begins close to it.
 *  Returns 0 if there is no point. */
int lathe_plot_range(const lathe_plot *plot, double x[2], double y[2]);

/** Widens a range to round numbers, for about max ticks. */
void lathe_axis_widen(double range[2], int32_t max, int32_t unit);

/** Round numbers in [lo, hi] (for bytes, round in the displayed unit), at most max and at most 16;
 *  *out_step is their distance. */
int32_t lathe_axis_ticks(double lo, double hi, int32_t max, int32_t unit, double *out,
                         double *out_step);

/** Formats a number for people: "3.32", "12.5k", "1.0e-05", "71%", "396.9 MiB", "1.2 ms". step:
 *  distance of the ticks, which decides the digits; 0: four digits. */
void lathe_axis_text(double value, double step, int32_t unit, char *out, int64_t bytes);

/** "01:26", "3:02:11", "4d 03:10" */
void lathe_duration_text(double seconds, char *out, int64_t bytes);

#endif

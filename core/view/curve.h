/* What plots are made of, whether in a terminal (canvas_plot) or on a page (svg_plot). */
#ifndef LATHE_VIEW_CURVE_H
#define LATHE_VIEW_CURVE_H

#include <stdint.h>

/** n points, x growing. lo and hi: least and largest around each point, or NULL. */
typedef struct lathe_curve {
    const char *label; /* NULL: none */
    const double *x, *y, *lo, *hi;
    int32_t n;
    int32_t color;    /* 0, 1, ...: of the palette */
    int32_t is_marks; /* points of their own, joined by a thin line at most */
    double last;      /* the newest value, told in the legend */
} lathe_curve;

/* What the numbers of an axis are. */
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
    double x_end;       /* x reaches from 0 to here at least; 0: as far as the points */
    int32_t from_zero;  /* y begins at 0 */
    int32_t is_stacked; /* curves are areas lo..hi on top of each other (pages only) */
} lathe_plot;

/** The range of all finite points; y widened where it is empty, x from 0 when it begins close to
 *  it.
 *  0: there is no point. */
int lathe_plot_range(const lathe_plot *plot, double x[2], double y[2]);

/** Widens a range to the round numbers around it, for about max of them. */
void lathe_axis_widen(double range[2], int32_t max, int32_t unit);

/** Round numbers in [lo, hi] (bytes: round in the unit they are told in), at most max of them and
 *  at most 16; *out_step is their distance. */
int32_t lathe_axis_ticks(double lo, double hi, int32_t max, int32_t unit, double *out,
                         double *out_step);

/** A number for people: "3.32", "12.5k", "1.0e-05", "71%", "396.9 MiB", "1.2 ms". step: the
 *  distance of the ticks, which decides the digits; 0: four digits. */
void lathe_axis_text(double value, double step, int32_t unit, char *out, int64_t bytes);

/** "01:26", "3:02:11", "4d 03:10" */
void lathe_duration_text(double seconds, char *out, int64_t bytes);

#endif

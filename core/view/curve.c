/* Computes ranges, ticks and number texts for plots. */
#include "view/curve.h"

#include <math.h>
#include <stdio.h>

static void take(double v, double range[2], int *n)
{
    if (!isfinite(v))
        return;
    if (*n == 0 || v < range[0])
        range[0] = v;
    if (*n == 0 || v > range[1])
        range[1] = v;
    (*n)++;
}

int lathe_plot_range(const lathe_plot *plot, double x[2], double y[2])
{
    int nx = 0, ny = 0;
    x[0] = y[0] = 0.0;
    x[1] = y[1] = 1.0;
    for (int32_t k = 0; k < plot->n_curves; k++) {
        const lathe_curve *c = &plot->curves[k];
        for (int32_t i = 0; i < c->n; i++) {
            take(c->x[i], x, &nx);
            take(c->lo ? c->lo[i] : c->y[i], y, &ny);
            take(c->hi ? c->hi[i] : c->y[i], y, &ny);
        }
    }
    if (ny == 0)
        return 0;
    if (plot->from_zero && y[0] > 0.0)
        y[0] = 0.0;
    if (plot->x_end > 0.0) {
        x[0] = fmin(x[0], 0.0);
        x[1] = fmax(x[1], plot->x_end);
    }
    if (x[0] > 0.0 && x[0] <= 0.05 * x[1])
        x[0] = 0.0;
    if (x[1] <= x[0])
        x[1] = x[0] + 1.0;
    if (y[1] <= y[0]) { /* a constant: show it in the middle */
        const double around = y[0] != 0.0 ? 0.5 * fabs(y[0]) : 1.0;
        y[1] = y[0] + around;
        y[0] -= plot->from_zero && y[0] == 0.0 ? 0.0 : around;
    }
    return 1;
}

/* The smallest step of 1, 2 or 5 times a power of ten with at most max multiples in [lo, hi]. */
static double nice_step(double lo, double hi, int32_t max)
{
    static const double steps[] = {1.0, 2.0, 5.0};
    double power = pow(10.0, floor(log10((hi - lo) / (double)(max + 1))));
    for (int i = 0; i < 12; i++) {
        const double step = steps[i % 3] * power;
        if (floor(hi / step + 1e-9) - ceil(lo / step - 1e-9) + 1.0 <= (double)max)
            return step;
        if (i % 3 == 2)
            power *= 10.0;
    }
    return hi - lo;
}

/* Distance between at most max ticks; for bytes, a round number of the displayed unit. */
static double tick_step(double lo, double hi, int32_t max, int32_t unit)
{
    double scale = 1.0;
    while (unit == LATHE_UNIT_BYTES && hi / scale >= 1024.0)
        scale *= 1024.0;
    return scale * nice_step(lo / scale, hi / scale, max);
}

void lathe_axis_widen(double range[2], int32_t max, int32_t unit)
{
    const double step = tick_step(range[0], range[1], max, unit);
    const double lo = floor(range[0] / step + 1e-9) * step;
    const double hi = ceil(range[1] / step - 1e-9) * step;
    if (isfinite(lo) && isfinite(hi) && hi > lo) {
        range[0] = lo;
        range[1] = hi;
    }
}

int32_t lathe_axis_ticks(double lo, double hi, int32_t max, int32_t unit, double *out,
                         double *out_step)
{
    int32_t n = 0;
    *out_step = 0.0;
    if (!isfinite(lo) || !isfinite(hi) || hi <= lo || max < 1)
        return 0;
    if (max > 16)
        max = 16;
    const double step = tick_step(lo, hi, max, unit);
    if (step <= 0.0 || !isfinite(step))
        return 0;
    const double slack = 1e-9 * step;
    for (double k = ceil((lo - slack) / step); n < max && k * step <= hi + slack; k += 1.0)
        out[n++] = k == 0.0 ? 0.0 : k * step;
    *out_step = step;
    return n;
}

/* Digits after the decimal point that distinguish ticks `step` apart; step 0: three or four
 * significant digits. */
static int digits(double value, double step)
{
    const double at = step > 0.0 ? step : fabs(value) / 999.9;
    const double d = at > 0.0 ? ceil(-log10(at) - 1e-9) : 0.0;
    return d < 0.0 ? 0 : d > 9.0 ? 9 : (int)d;
}

static void plain_text(double value, double step, char *out, int64_t bytes)
{
    static const char suffix[] = {'\0', 'k', 'M', 'G', 'T', 'P'};
    const double size = fmax(fabs(value), step);
    double v = value, s = step;
    int i = 0;
    if (value == 0.0) {
        (void)snprintf(out, (size_t)bytes, "0");
        return;
    }
    if (size < 1e-3 || size >= 1e18) {
        (void)snprintf(out, (size_t)bytes, step > 0.0 ? "%.2g" : "%.2e", value);
        return;
    }
    if (size >= 1e4 || (step >= 1e3 && size >= 1e3))
        for (; i < 5 && fabs(v) >= 999.95; i++) {
            v /= 1e3;
            s /= 1e3;
        }
    (void)snprintf(out, (size_t)bytes, "%.*f%.1s", digits(v, s), v, suffix[i] ? &suffix[i] : "");
}

/* Formats a value with one of `units`, each `base` times the one before. */
static void scaled_text(double value, double step, const char *const *units, int n, double base,
                        char *out, int64_t bytes)
{
    int i = 0;
    for (; i + 1 < n && fmax(fabs(value), step) >= base * 0.9995; i++) {
        value /= base;
        step /= base;
    }
    const int d = step > 0.0 ? digits(value, step) : fabs(value) >= 99.95 || i == 0 ? 0 : 1;
    (void)snprintf(out, (size_t)bytes, "%.*f %s", d > 3 ? 3 : d, value, units[i]);
}

void lathe_axis_text(double value, double step, int32_t unit, char *out, int64_t bytes)
{
    static const char *const sizes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    if (!isfinite(value)) {
        (void)snprintf(out, (size_t)bytes, "-");
        return;
    }
    switch (unit) {
    case LATHE_UNIT_SHARE:
        (void)snprintf(out, (size_t)bytes, "%.*f%%", step > 0.0 ? digits(0.0, step * 100.0) : 0,
                       value * 100.0);
        break;
    case LATHE_UNIT_BYTES:
        scaled_text(value, step, sizes, 5, 1024.0, out, bytes);
        break;
    case LATHE_UNIT_SECONDS:
        if (value == 0.0)
            (void)snprintf(out, (size_t)bytes, "0");
        else if (fmax(fabs(value), step) >= 0.9995)
            (void)snprintf(out, (size_t)bytes, "%.*f s", step > 0.0 ? digits(value, step) : 2,
                           value);
        else if (fmax(fabs(value), step) >= 0.9995e-3)
            (void)snprintf(out, (size_t)bytes, "%.*f ms",
                           step > 0.0         ? digits(0.0, step * 1e3)
                           : value < 9.995e-3 ? 2
                                              : 0,
                           value * 1e3);
        else
            (void)snprintf(out, (size_t)bytes, "%.*f us", step > 0.0 ? digits(0.0, step * 1e6) : 0,
                           value * 1e6);
        break;
    case LATHE_UNIT_COUNT:
        if (fabs(value) < 1e5) {
            (void)snprintf(out, (size_t)bytes, "%.0f", value);
            break;
        } /* fall through */
    default:
        plain_text(value, step, out, bytes);
    }
}

void lathe_duration_text(double seconds, char *out, int64_t bytes)
{
    if (!isfinite(seconds) || seconds < 0.0 || seconds > 1e11) {
        (void)snprintf(out, (size_t)bytes, "-");
        return;
    }
    const long long s = (long long)(seconds + 0.5);
    if (s >= 86400)
        (void)snprintf(out, (size_t)bytes, "%lldd %02lld:%02lld", s / 86400, s / 3600 % 24,
                       s / 60 % 60);
    else if (s >= 3600)
        (void)snprintf(out, (size_t)bytes, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        (void)snprintf(out, (size_t)bytes, "%02lld:%02lld", s / 60, s % 60);
}

/* Ticks and numbers in the form that people read. */
#include <criterion/criterion.h>
#include <math.h>

#include "view/curve.h"

static void expect_ticks(double lo, double hi, int32_t max, int32_t unit, int32_t n, double first,
                         double step)
{
    double ticks[16], seen = 0.0;
    const int32_t got = lathe_axis_ticks(lo, hi, max, unit, ticks, &seen);
    cr_expect_eq(got, n, "%g..%g: %d ticks, expected %d", lo, hi, got, n);
    cr_expect_float_eq(seen, step, 1e-9 * step, "%g..%g: step %g", lo, hi, seen);
    for (int32_t i = 0; i < got; i++)
        cr_expect_float_eq(ticks[i], first + i * step, 1e-9 * step, "%g", ticks[i]);
}

Test(axis, ticks_are_round_and_inside)
{
    expect_ticks(0.0, 10.0, 6, LATHE_UNIT_NONE, 6, 0.0, 2.0);
    expect_ticks(2.9, 8.1, 6, LATHE_UNIT_NONE, 6, 3.0, 1.0);
    expect_ticks(2.9, 8.1, 3, LATHE_UNIT_NONE, 3, 4.0, 2.0);
    expect_ticks(-0.03, 0.03, 3, LATHE_UNIT_NONE, 3, -0.02, 0.02);
    expect_ticks(0.0, 3e-4, 4, LATHE_UNIT_NONE, 4, 0.0, 1e-4);
    expect_ticks(1.0, 1000000.0, 6, LATHE_UNIT_NONE, 5, 200000.0, 200000.0);
    expect_ticks(0.0, 3.0 * 1048576.0, 4, LATHE_UNIT_BYTES, 4, 0.0, 1048576.0);
    double ticks[16], step;
    cr_expect_eq(lathe_axis_ticks(1.0, 1.0, 5, 0, ticks, &step), 0);
    cr_expect_eq(lathe_axis_ticks((double)NAN, 1.0, 5, 0, ticks, &step), 0);
    cr_expect_eq(lathe_axis_ticks(0.0, (double)INFINITY, 5, 0, ticks, &step), 0);
    cr_expect_leq(lathe_axis_ticks(0.0, 1.0, 1000, 0, ticks, &step), 16);
    cr_expect_leq(lathe_axis_ticks(-1e300, 1e300, 5, 0, ticks, &step), 5);
    cr_expect_leq(lathe_axis_ticks(1e15, 1e15 + 1.0, 5, 0, ticks, &step), 5);
}

Test(axis, widening_reaches_the_next_round_numbers)
{
    double range[2] = {2.9, 8.1};
    lathe_axis_widen(range, 6, LATHE_UNIT_NONE);
    cr_expect_float_eq(range[0], 2.0, 1e-12);
    cr_expect_float_eq(range[1], 9.0, 1e-12);
}

Test(axis, numbers_are_short)
{
    static const struct {
        double value, step;
        int32_t unit;
        const char *text;
    } rows[] = {
        {3.3169, 0, LATHE_UNIT_NONE, "3.317"},
        {3.0, 0.5, LATHE_UNIT_NONE, "3.0"},
        {0.0, 0.5, LATHE_UNIT_NONE, "0"},
        {12345.0, 0, LATHE_UNIT_NONE, "12.35k"},
        {200000.0, 200000.0, LATHE_UNIT_NONE, "200k"},
        {1500.0, 500.0, LATHE_UNIT_NONE, "1500"},
        {9990000.0, 0, LATHE_UNIT_NONE, "9.990M"},
        {1e-5, 0, LATHE_UNIT_NONE, "1.00e-05"},
        {2e-4, 1e-4, LATHE_UNIT_NONE, "0.0002"},
        {-4.0, 2.0, LATHE_UNIT_NONE, "-4"},
        {0.712, 0, LATHE_UNIT_SHARE, "71%"},
        {0.5, 0.1, LATHE_UNIT_SHARE, "50%"},
        {416127424.0, 0, LATHE_UNIT_BYTES, "397 MiB"},
        {1023.0, 0, LATHE_UNIT_BYTES, "1023 B"},
        {1536.0, 0, LATHE_UNIT_BYTES, "1.5 KiB"},
        {0.0473, 0, LATHE_UNIT_SECONDS, "47 ms"},
        {2.0, 0, LATHE_UNIT_SECONDS, "2.00 s"},
        {12e-6, 0, LATHE_UNIT_SECONDS, "12 us"},
        {0.02, 0.01, LATHE_UNIT_SECONDS, "20 ms"},
        {200.0, 0, LATHE_UNIT_COUNT, "200"},
        {204800.0, 0, LATHE_UNIT_COUNT, "204.8k"},
        {(double)NAN, 0, LATHE_UNIT_NONE, "-"},
    };
    char text[32];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lathe_axis_text(rows[i].value, rows[i].step, rows[i].unit, text, sizeof text);
        cr_expect_str_eq(text, rows[i].text, "%g, step %g: '%s', expected '%s'", rows[i].value,
                         rows[i].step, text, rows[i].text);
    }
}

Test(axis, durations_are_read_at_a_glance)
{
    char text[32];
    static const struct {
        double seconds;
        const char *text;
    } rows[] = {{0.0, "00:00"},        {86.4, "01:26"},    {3725.0, "1:02:05"},
                {90061.0, "1d 01:01"}, {(double)NAN, "-"}, {-1.0, "-"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lathe_duration_text(rows[i].seconds, text, sizeof text);
        cr_expect_str_eq(text, rows[i].text);
    }
}

Test(plot, the_range_takes_spreads_in_and_leaves_what_is_not_finite_out)
{
    const double x[] = {10, 20, 1000}, y[] = {1, (double)NAN, 3}, lo[] = {0.5, 1, 3},
                 hi[] = {1, (double)INFINITY, 4};
    const lathe_curve curve = {.x = x, .y = y, .lo = lo, .hi = hi, .n = 3};
    const lathe_plot plot = {.curves = &curve, .n_curves = 1}, none = {.curves = &curve};
    double xr[2], yr[2];
    cr_assert(lathe_plot_range(&plot, xr, yr));
    cr_expect_eq(xr[0], 0.0); /* 10 is close to it */
    cr_expect_eq(xr[1], 1000.0);
    cr_expect_eq(yr[0], 0.5);
    cr_expect_eq(yr[1], 4.0);
    cr_expect_not(lathe_plot_range(&none, xr, yr));
}

Test(plot, a_constant_lies_in_the_middle)
{
    const double x[] = {1, 2}, y[] = {4, 4}, zero[] = {0, 0};
    lathe_curve curve = {.x = x, .y = y, .n = 2};
    const lathe_plot plot = {.curves = &curve, .n_curves = 1};
    double xr[2], yr[2];
    cr_assert(lathe_plot_range(&plot, xr, yr));
    cr_expect_eq(yr[0], 2.0);
    cr_expect_eq(yr[1], 6.0);
    curve.y = zero;
    cr_assert(lathe_plot_range(&plot, xr, yr));
    cr_expect_eq(yr[0], -1.0);
    cr_expect_eq(yr[1], 1.0);
}

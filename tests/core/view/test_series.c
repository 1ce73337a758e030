/* Bounded curves: exact while small, with correct extremes after joining, cut when a run goes
 * back. */
#include <criterion/criterion.h>
#include <math.h>

#include "view/series.h"

static lathe_series s;

static void clean(void)
{
    lathe_series_fini(&s);
}

TestSuite(series, .fini = clean);

static void add(int64_t step, double value)
{
    cr_assert_eq(lathe_series_add(&s, step, value), LATHE_OK);
}

Test(series, an_empty_one_has_no_values)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_curve curve;
    cr_expect(isnan(lathe_series_last(&s)));
    cr_expect(isnan(lathe_series_least(&s, NULL)));
    cr_expect(isnan(lathe_series_mean(&s, 10)));
    cr_expect(isnan(lathe_series_at(&s, 0)));
    cr_assert_eq(lathe_series_curve(&s, 100, &arena, &curve), LATHE_OK);
    cr_expect_eq(curve.n, 0);
    lathe_arena_fini(&arena);
}

Test(series, a_small_one_is_exact)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_curve curve;
    int64_t where = 0;
    add(1, 5.0), add(3, 2.0), add(4, (double)NAN), add(9, 4.0);
    cr_assert_eq(lathe_series_curve(&s, 100, &arena, &curve), LATHE_OK);
    cr_assert_eq(curve.n, 3);
    const double x[] = {1, 3, 9}, y[] = {5, 2, 4};
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(curve.x[i], x[i]);
        cr_expect_eq(curve.y[i], y[i]);
    }
    cr_expect_eq(s.n_missing, 1);
    cr_expect_eq(lathe_series_least(&s, &where), 2.0);
    cr_expect_eq(where, 3);
    cr_expect_eq(lathe_series_at(&s, 3), 2.0);
    cr_expect(isnan(lathe_series_at(&s, 4)));
    cr_expect_eq(lathe_series_last(&s), 4.0);
    cr_expect_eq(lathe_series_mean(&s, 7), 3.0); /* steps 3 and 9 */
    lathe_arena_fini(&arena);
}

Test(series, a_long_one_keeps_extremes_sums_and_ends)
{
    enum { N = 1000003 };
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_curve curve;
    double sum = 0.0, joined = 0.0;
    int64_t count = 0;
    for (int64_t i = 0; i < N; i++) {
        const double v = i == 777777 ? 1e6 : i == 333333 ? -7.0 : sin((double)i * 1e-3);
        add(i, v);
        sum += v;
    }
    cr_expect(s.n <= LATHE_SERIES_BUCKETS && s.n > LATHE_SERIES_BUCKETS / 4, "%d", s.n);
    for (int32_t i = 0; i < s.n; i++) {
        joined += s.buckets[i].sum;
        count += s.buckets[i].n;
        cr_assert(i == 0 || s.buckets[i].first == s.buckets[i - 1].last + 1);
    }
    cr_expect_eq(count, N);
    cr_expect_float_eq(joined, sum, 1e-6 * 1e6); /* 1e6 terms of about 1, and one of 1e6 */
    cr_assert_eq(lathe_series_curve(&s, 200, &arena, &curve), LATHE_OK);
    cr_assert_eq(curve.n, 200);
    cr_expect_eq(curve.x[0], 0.0);
    cr_expect_eq(curve.x[199], N - 1);
    double lo = 0.0, hi = 0.0;
    for (int32_t i = 0; i < curve.n; i++) {
        lo = fmin(lo, curve.lo[i]);
        hi = fmax(hi, curve.hi[i]);
        cr_expect(curve.lo[i] <= curve.y[i] && curve.y[i] <= curve.hi[i]);
    }
    cr_expect_eq(lo, -7.0);
    cr_expect_eq(hi, 1e6);
    lathe_arena_fini(&arena);
}

Test(series, steps_far_apart_fit_too)
{
    for (int64_t i = 0; i < 10000; i++)
        add(i * 1000000007, (double)i);
    cr_expect(s.n <= LATHE_SERIES_BUCKETS);
    cr_expect_eq(lathe_series_last(&s), 9999.0);
    cr_expect_eq(lathe_series_least(&s, NULL), 0.0);
}

Test(series, going_back_removes_the_later_values)
{
    for (int64_t i = 1; i <= 10; i++)
        add(i, (double)i);
    add(5, 50.0);
    cr_assert_eq(s.n, 5);
    cr_expect_eq(lathe_series_last(&s), 50.0);
    cr_expect_eq(lathe_series_at(&s, 4), 4.0);
    lathe_series_cut(&s, 2);
    cr_expect_eq(s.n, 1);
    lathe_series_cut(&s, 0);
    cr_expect(isnan(lathe_series_last(&s)));
    add(1, 3.0);
    cr_expect_eq(lathe_series_last(&s), 3.0);
}

/* Stores curves in bounded memory. */
#include "view/series.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"

/* Joins neighbouring buckets until half of them are free. */
static void join(lathe_series *s)
{
    while (s->n > LATHE_SERIES_BUCKETS / 2) {
        int32_t n = 0;
        s->stride *= 2;
        for (int32_t i = 0; i < s->n; i++) {
            const lathe_bucket b = s->buckets[i];
            lathe_bucket *to = n > 0 ? &s->buckets[n - 1] : NULL;
            if (to == NULL || to->first / s->stride != b.first / s->stride) {
                s->buckets[n++] = b;
                continue;
            }
            to->last = b.last;
            to->least = fmin(to->least, b.least);
            to->largest = fmax(to->largest, b.largest);
            to->sum += b.sum;
            to->newest = b.newest;
            to->n += b.n;
        }
        s->n = n;
    }
}

void lathe_series_cut(lathe_series *s, int64_t step)
{
    while (s->n > 0 && s->buckets[s->n - 1].last >= step)
        s->n--;
    if (s->step >= step)
        s->step = step - 1;
}

lathe_status lathe_series_add(lathe_series *s, int64_t step, double value)
{
    if (step < s->step)
        lathe_series_cut(s, step);
    if (s->buckets == NULL) {
        s->buckets = calloc(LATHE_SERIES_BUCKETS, sizeof *s->buckets);
        s->n = 0;
        if (s->buckets == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory for a curve");
        s->stride = 1;
        s->step = -1;
    }
    s->step = step;
    if (!isfinite(value)) {
        s->n_missing++;
        return LATHE_OK;
    }
    lathe_bucket *const all = s->buckets, *b = s->n > 0 ? &all[s->n - 1] : NULL;
    if (b == NULL || b->first / s->stride != step / s->stride) {
        if (s->n == LATHE_SERIES_BUCKETS)
            join(s);
        b = s->n > 0 ? &all[s->n - 1] : NULL;
        if (b == NULL || b->first / s->stride != step / s->stride) {
            all[s->n++] = (lathe_bucket){step, step, value, value, value, value, 1};
            return LATHE_OK;
        }
    }
    b->last = step;
    b->least = fmin(b->least, value);
    b->largest = fmax(b->largest, value);
    b->sum += value;
    b->newest = value;
    b->n++;
    return LATHE_OK;
}

void lathe_series_fini(lathe_series *s)
{
    free(s->buckets);
    *s = (lathe_series){0};
}

double lathe_series_last(const lathe_series *s)
{
    return s->n > 0 ? s->buckets[s->n - 1].newest : (double)NAN;
}

double lathe_series_at(const lathe_series *s, int64_t step)
{
    for (int32_t i = s->n; i-- > 0 && s->buckets[i].last >= step;)
        if (s->buckets[i].first <= step)
            return s->buckets[i].sum / (double)s->buckets[i].n;
    return (double)NAN;
}

double lathe_series_least(const lathe_series *s, int64_t *out_step)
{
    double least = (double)NAN;
    for (int32_t i = 0; i < s->n; i++)
        if (i == 0 || s->buckets[i].least < least) {
            least = s->buckets[i].least;
            if (out_step)
                *out_step = s->buckets[i].last;
        }
    return least;
}

double lathe_series_largest(const lathe_series *s)
{
    double largest = (double)NAN;
    for (int32_t i = 0; i < s->n; i++)
        largest = fmax(largest, s->buckets[i].largest);
    return largest;
}

double lathe_series_sum(const lathe_series *s)
{
    double sum = 0.0;
    for (int32_t i = 0; i < s->n; i++)
        sum += s->buckets[i].sum;
    return sum;
}

double lathe_series_mean(const lathe_series *s, int64_t n_steps)
{
    double sum = 0.0;
    int64_t n = 0;
    for (int32_t i = s->n; i-- > 0 && s->buckets[i].last > s->step - n_steps;) {
        sum += s->buckets[i].sum;
        n += s->buckets[i].n;
    }
    return n > 0 ? sum / (double)n : (double)NAN;
}

lathe_status lathe_series_curve(const lathe_series *s, int32_t max_points, lathe_arena *arena,
                                lathe_curve *out)
{
    const int32_t n = s->n < max_points ? s->n : max_points;
    double *data = lathe_arena_alloc(arena, (4 * (int64_t)n + 1) * (int64_t)sizeof *data);
    if (data == NULL)
        return LATHE_E_NOMEM;
    double *x = data, *y = x + n, *lo = y + n, *hi = lo + n;
    for (int32_t p = 0; p < n; p++) { /* buckets [begin, end) become point p */
        const int32_t begin = (int32_t)((int64_t)p * s->n / n);
        const int32_t end = (int32_t)((int64_t)(p + 1) * s->n / n);
        double sum = 0.0;
        int64_t count = 0;
        lo[p] = s->buckets[begin].least;
        hi[p] = s->buckets[begin].largest;
        for (int32_t i = begin; i < end; i++) {
            lo[p] = fmin(lo[p], s->buckets[i].least);
            hi[p] = fmax(hi[p], s->buckets[i].largest);
            sum += s->buckets[i].sum;
            count += s->buckets[i].n;
        }
        x[p] = 0.5 * ((double)s->buckets[begin].first + (double)s->buckets[end - 1].last);
        y[p] = sum / (double)count;
    }
    if (n > 1) { /* the first and last points are at the run's ends, not the buckets' */
        x[0] = (double)s->buckets[0].first;
        x[n - 1] = (double)s->buckets[s->n - 1].last;
    }
    *out = (lathe_curve){.x = x, .y = y, .lo = lo, .hi = hi, .n = n, .last = lathe_series_last(s)};
    return LATHE_OK;
}

/* A curve in bounded memory: buckets of neighbouring steps with minimum, maximum, mean and last
 * value. At first each bucket is one step; when all buckets are used, neighbours are joined. */
#ifndef LATHE_VIEW_SERIES_H
#define LATHE_VIEW_SERIES_H

#include "base/arena.h"
#include "view/curve.h"

enum { LATHE_SERIES_BUCKETS = 2048 };

typedef struct lathe_bucket {
    int64_t first, last; /* steps */
    double least, largest, sum, newest;
    int64_t n;
} lathe_bucket;

/** All zeros: empty. */
typedef struct lathe_series {
    lathe_bucket *buckets; /* NULL before the first value */
    int32_t n;
    int64_t stride;    /* steps per bucket: those with the same step / stride */
    int64_t n_missing; /* values that were not finite */
    int64_t step;      /* step of the last value, finite or not; -1: none */
} lathe_series;

/** Adds a value. If its step is before the last one, the run went back: first removes all values
 *  from that step on. LATHE_E_NOMEM. */
lathe_status lathe_series_add(lathe_series *s, int64_t step, double value);

/** Removes all values from a step on; a bucket that contains the step is removed as a whole. */
void lathe_series_cut(lathe_series *s, int64_t step);

void lathe_series_fini(lathe_series *s);

/** The last finite value; NAN if there is none. */
double lathe_series_last(const lathe_series *s);
/** The value at a step: the mean of its bucket. NAN: none. */
double lathe_series_at(const lathe_series *s, int64_t step);
/** The minimum and its step, accurate to a bucket. NAN if there is none. */
double lathe_series_least(const lathe_series *s, int64_t *out_step);
double lathe_series_largest(const lathe_series *s);
double lathe_series_sum(const lathe_series *s);
/** Mean over the last n_steps steps. */
double lathe_series_mean(const lathe_series *s, int64_t n_steps);

/** At most max_points points of the whole curve, in the arena: mean, minimum and maximum of each.
 *  LATHE_E_NOMEM. */
lathe_status lathe_series_curve(const lathe_series *s, int32_t max_points, lathe_arena *arena,
                                lathe_curve *out);

#endif

/* Counts the evaluations since the last improvement, for early stopping. */
#include "optim/early_stop.h"

#include <math.h>

void lathe_early_stop_observe(lathe_early_stop *s, double metric, int32_t higher, double threshold)
{
    const double gain = higher ? metric - s->best : s->best - metric;
    const int32_t first = s->n_evaluations == 0 || isnan(s->best);
    s->n_evaluations++;
    if (!isnan(metric) && (first || gain > threshold))
        s->n_since = 0;
    else
        s->n_since++;
    if (first || gain > 0.0)
        s->best = metric;
}

/* Divides the sums of a stage's metrics. */
#include "metrics/stage_metrics.h"

#include <math.h>

int32_t lathe_stage_metrics(const lathe_stage_loss *stage, const double *sums, double count,
                            const char *names[LATHE_MAX_STAGE_METRICS],
                            double values[LATHE_MAX_STAGE_METRICS])
{
    int32_t n = 0;
    for (int32_t i = 0; i < stage->n_metrics; i++) {
        const int32_t over = stage->metrics[i].over;
        const double divisor = over > 0 ? sums[over - 1] : count;
        if (stage->metrics[i].name == NULL)
            continue;
        names[n] = stage->metrics[i].name;
        values[n++] = divisor > 0.0 ? sums[i] / divisor : (double)NAN;
    }
    return n;
}

/* Expected calibration error of the predictions. */
#include "exec/program/calibration.h"

#include <math.h>

static int32_t bin_of(double p)
{
    const double at = ceil(p * LATHE_CALIBRATION_BINS) - 1.0;
    if (at >= 0.0)
        return at < LATHE_CALIBRATION_BINS ? (int32_t)at : LATHE_CALIBRATION_BINS - 1;
    return isnan(p) ? LATHE_CALIBRATION_BINS - 1 : 0;
}

void lathe_calibration_add(lathe_calibration *c, double p, int32_t hit)
{
    const int32_t b = bin_of(p);
    c->n[b] += 1.0;
    c->hits[b] += hit ? 1.0 : 0.0;
    c->confidence[b] += isnan(p) ? 1.0 : p;
}

static double total(const double *x)
{
    double sum = 0.0;
    for (int32_t b = 0; b < LATHE_CALIBRATION_BINS; b++)
        sum += x[b];
    return sum;
}

double lathe_calibration_error(const lathe_calibration *c)
{
    double sum = 0.0;
    for (int32_t b = 0; b < LATHE_CALIBRATION_BINS; b++)
        sum += fabs(c->hits[b] - c->confidence[b]);
    return total(c->n) > 0.0 ? sum / total(c->n) : (double)NAN;
}

double lathe_calibration_accuracy(const lathe_calibration *c)
{
    return total(c->n) > 0.0 ? total(c->hits) / total(c->n) : (double)NAN;
}

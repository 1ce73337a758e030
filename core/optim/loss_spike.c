/* Detects loss spikes. */
#include "optim/loss_spike.h"

#include <math.h>

#define STD_LEAST_OF_MEAN 1e-3
#define STD_LEAST 1e-6 /* nats: lower limit of std if the mean is 0 */

int32_t lathe_loss_spike_count(const lathe_loss_spike *s, int32_t window)
{
    return s->n_accepted < window ? (int32_t)s->n_accepted : window;
}

double lathe_loss_spike_get(const lathe_loss_spike *s, int32_t n, int32_t i)
{
    return s->losses[(s->n_accepted - n + i) % LATHE_MAX_SPIKE_WINDOW];
}

lathe_loss_verdict lathe_loss_spike_judge(const lathe_loss_spike *s, double loss, int32_t window,
                                          double threshold)
{
    const int32_t half = (window + 1) / 2;
    lathe_loss_verdict v = {(double)NAN, (double)NAN, (double)NAN, 0, 0};
    v.n = lathe_loss_spike_count(s, window);
    if (v.n < half || v.n < 2)
        return v;
    double sum = 0.0, squares = 0.0;
    for (int32_t i = 0; i < v.n; i++)
        sum += lathe_loss_spike_get(s, v.n, i);
    v.mean = sum / v.n;
    for (int32_t i = 0; i < v.n; i++) {
        const double d = lathe_loss_spike_get(s, v.n, i) - v.mean;
        squares += d * d;
    }
    v.std = sqrt(squares / v.n);
    v.zscore = (loss - v.mean) / fmax(v.std, fmax(STD_LEAST_OF_MEAN * fabs(v.mean), STD_LEAST));
    v.is_spike = v.zscore > threshold;
    return v;
}

void lathe_loss_spike_accept(lathe_loss_spike *s, double loss)
{
    s->losses[s->n_accepted % LATHE_MAX_SPIKE_WINDOW] = loss;
    s->n_accepted++;
}

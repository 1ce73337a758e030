/* Generalized advantages of the tokens of completions, and their whitening. */
#include <math.h>

#include "ppo.h"

void ppo_gae(const ppo *p, const float *rewards, const float *values, int32_t n, float *advantages,
             float *returns)
{
    double advantage = 0.0, next_value = 0.0; /* a completion ends: nothing follows it */
    for (int32_t t = n - 1; t >= 0; t--) {
        const double value = (double)values[t];
        const double delta = (double)rewards[t] + p->gamma * next_value - value;
        advantage = delta + p->gamma * p->lambda * advantage;
        advantages[t] = (float)advantage;
        returns[t] = (float)(advantage + value);
        next_value = value;
    }
}

void ppo_moments(const ppo_span *spans, int32_t n_spans, double *out_mean, double *out_variance)
{
    double sum = 0.0, squares = 0.0;
    int64_t n = 0;
    for (int32_t i = 0; i < n_spans; i++) {
        n += spans[i].n;
        for (int32_t t = 0; t < spans[i].n; t++)
            sum += (double)spans[i].x[t];
    }
    const double mean = n > 0 ? sum / (double)n : 0.0;
    for (int32_t i = 0; i < n_spans; i++)
        for (int32_t t = 0; t < spans[i].n; t++)
            squares += ((double)spans[i].x[t] - mean) * ((double)spans[i].x[t] - mean);
    *out_mean = mean;
    *out_variance = n > 1 ? squares / (double)(n - 1) : 0.0;
}

void ppo_whiten(const ppo_span *spans, int32_t n_spans)
{
    double mean, variance;
    ppo_moments(spans, n_spans, &mean, &variance);
    const double scale = 1.0 / sqrt(variance + 1e-8);
    for (int32_t i = 0; i < n_spans; i++)
        for (int32_t t = 0; t < spans[i].n; t++)
            spans[i].x[t] = (float)(((double)spans[i].x[t] - mean) * scale);
}

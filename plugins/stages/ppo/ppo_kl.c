/* The divergence from the reference model: its estimate, and the coefficient that follows it. */
#include <math.h>

#include "ppo.h"

double ppo_divergence(const ppo *p, double d)
{
    if (p->kl_estimator == PPO_K1)
        return -d;
    return p->kl_estimator == PPO_K2 ? 0.5 * d * d : expm1(d) - d;
}

double ppo_adapted_coef(const ppo *p, double coef, double kl, int32_t n)
{
    const double error = fmin(fmax(kl / p->kl_target - 1.0, -0.2), 0.2);
    return isnan(kl) ? coef : coef * (1.0 + error * n / (double)p->kl_horizon);
}

/* The divergence from the reference model: its estimate, and the coefficient that follows it. */
#include <math.h>

#include "ppo.h"

/* Schulman's estimators of KL(policy, reference) from one token that the policy has drawn, with d =
 * log p_ref - log p: k1 = -d has no bias, k2 = d^2 / 2 little variance, k3 = e^d - 1 - d neither
 * bias nor negative values. expm1 keeps the digits of k3 near 0, where d^2 / 2 is what is left.
 * http://joschu.net/blog/kl-approx.html */
double ppo_divergence(const ppo *p, double d)
{
    if (p->kl_estimator == PPO_K1)
        return -d;
    return p->kl_estimator == PPO_K2 ? 0.5 * d * d : expm1(d) - d;
}

/* The error is clipped to 0.2, so that one rollout with an outlier changes the coefficient by at
 * most 0.2 n / horizon of itself. NaN: it was not measured. */
double ppo_adapted_coef(const ppo *p, double coef, double kl, int32_t n)
{
    const double error = fmin(fmax(kl / p->kl_target - 1.0, -0.2), 0.2);
    return isnan(kl) ? coef : coef * (1.0 + error * n / (double)p->kl_horizon);
}

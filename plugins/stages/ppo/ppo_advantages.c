/* Advantages of completions relative to their group, and the weights of their tokens in the loss.
 */
#include <math.h>

#include "ppo.h"

/* A smaller deviation of rewards is none: the tolerance of torch.isclose, which TRL uses. */
#define NO_DEVIATION 1e-8

static double mean_of(const double *x, int32_t n)
{
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++)
        sum += x[i];
    return sum / n;
}

/* The sample's standard deviation, with n - 1; 0 for one number. */
static double deviation_of(const double *x, int32_t n)
{
    const double mean = mean_of(x, n);
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return n > 1 ? sqrt(sum / (n - 1)) : 0.0;
}

void ppo_advantages(const ppo *p, const double *rewards, int32_t n, float *out,
                    double figures[PPO_N_FIGURES])
{
    const double batch_std = deviation_of(rewards, n);
    int32_t n_equal = 0;
    for (int32_t g = 0; g < n; g += p->group) {
        const double mean = mean_of(rewards + g, p->group);
        const double std = deviation_of(rewards + g, p->group);
        const double scale = p->scale_rewards == PPO_SCALE_GROUP   ? std + 1e-4
                             : p->scale_rewards == PPO_SCALE_BATCH ? batch_std + 1e-4
                                                                   : 1.0;
        n_equal += std <= NO_DEVIATION;
        for (int32_t i = g; i < g + p->group; i++)
            out[i] = (float)((rewards[i] - mean) / scale);
    }
    figures[PPO_EQUAL_GROUPS] = (double)n_equal / (n / p->group);
}

void ppo_reward_figures(const double *rewards, int32_t n, double figures[PPO_N_FIGURES])
{
    figures[PPO_REWARD] = mean_of(rewards, n);
    figures[PPO_REWARD_STD] = deviation_of(rewards, n);
}

double ppo_weight(const ppo *p, int32_t length, int64_t n_tokens, int32_t n_sequences)
{
    if (p->aggregation == PPO_BY_SEQUENCE)
        return (double)n_tokens / ((double)n_sequences * length);
    if (p->aggregation == PPO_BY_CONSTANT)
        return (double)n_tokens / ((double)n_sequences * p->max_new_tokens);
    return 1.0;
}

/* Advantages of completions relative to their group, and the weights of their tokens in the loss.
 */
#include <math.h>

#include "ppo.h"

/* A smaller deviation of rewards is none: the tolerance of torch.isclose, which TRL uses. */
#define NO_DEVIATION 1e-8

/* Mean and sample standard deviation (with n - 1; 0 for one number) of the numbers with a score;
 * returns how many these are. Without any, both are NaN. */
static int32_t moments_of(const double *x, int32_t n, double *out_mean, double *out_std)
{
    double sum = 0.0, squares = 0.0;
    int32_t n_scored = 0;
    for (int32_t i = 0; i < n; i++)
        if (!lathe_reward_is_no_score(&x[i])) {
            sum += x[i];
            n_scored++;
        }
    const double mean = n_scored > 0 ? sum / n_scored : (double)NAN;
    for (int32_t i = 0; i < n; i++)
        if (!lathe_reward_is_no_score(&x[i]))
            squares += (x[i] - mean) * (x[i] - mean);
    *out_mean = mean;
    *out_std = n_scored > 1 ? sqrt(squares / (n_scored - 1)) : n_scored == 1 ? 0.0 : (double)NAN;
    return n_scored;
}

void ppo_advantages(const ppo *p, const double *rewards, int32_t n, float *out,
                    double figures[PPO_N_FIGURES])
{
    double batch_mean, batch_std;
    int32_t n_equal = 0;
    (void)moments_of(rewards, n, &batch_mean, &batch_std);
    for (int32_t g = 0; g < n; g += p->group) {
        double mean, std;
        const int32_t n_scored = moments_of(rewards + g, p->group, &mean, &std);
        const double scale = p->scale_rewards == PPO_SCALE_GROUP   ? std + 1e-4
                             : p->scale_rewards == PPO_SCALE_BATCH ? batch_std + 1e-4
                                                                   : 1.0;
        n_equal += n_scored > 0 && std <= NO_DEVIATION;
        for (int32_t i = g; i < g + p->group; i++)
            out[i] =
                lathe_reward_is_no_score(&rewards[i]) ? 0.0f : (float)((rewards[i] - mean) / scale);
    }
    figures[PPO_EQUAL_GROUPS] = (double)n_equal / (n / p->group);
}

void ppo_reward_figures(const double *rewards, int32_t n, double figures[PPO_N_FIGURES])
{
    const int32_t n_scored = moments_of(rewards, n, &figures[PPO_REWARD], &figures[PPO_REWARD_STD]);
    figures[PPO_UNSCORED_SHARE] = n_scored < n ? 1.0 - (double)n_scored / n : (double)NAN;
}

double ppo_weight(const ppo *p, int32_t length, int64_t n_tokens, int32_t n_sequences)
{
    if (p->aggregation == PPO_BY_SEQUENCE)
        return (double)n_tokens / ((double)n_sequences * length);
    if (p->aggregation == PPO_BY_CONSTANT)
        return (double)n_tokens / ((double)n_sequences * p->max_new_tokens);
    return 1.0;
}

/* Settings of the stage ppo, and what its files share. */
#ifndef LATHE_STAGE_PPO_H
#define LATHE_STAGE_PPO_H

#include "lathe/plugin.h"
#include "lathe/stage.h"
#include "lathe/stage_run.h"

/* The loss of a token; in the order of the choices of loss_type. */
enum { PPO_CLIPPED, PPO_CISPO, PPO_IMPORTANCE_SAMPLING, PPO_DRO, PPO_N_LOSSES };
/* What the losses of tokens are divided by; in the order of the choices of aggregation. */
enum { PPO_BY_TOKEN, PPO_BY_SEQUENCE, PPO_BY_CONSTANT, PPO_N_AGGREGATIONS };
enum { PPO_SCALE_GROUP, PPO_SCALE_BATCH, PPO_SCALE_NONE, PPO_N_SCALES };
enum { PPO_K1, PPO_K2, PPO_K3, PPO_N_ESTIMATORS };

/* Inputs of the loss, per token. */
enum { PPO_INPUT_ADVANTAGES, PPO_INPUT_OLD_LOGPROBS, PPO_INPUT_WEIGHTS, PPO_N_INPUTS };

/* Figures of a step, in the order of ppo_figures. */
enum {
    PPO_REWARD,
    PPO_REWARD_STD,
    PPO_EQUAL_GROUPS,
    PPO_MEAN_LENGTH,
    PPO_CUT_SHARE,
    PPO_N_FIGURES
};
extern const lathe_stage_figure ppo_figures[PPO_N_FIGURES];

typedef struct ppo {
    const lathe_host *host;
    int32_t prompts, group, max_new_tokens, epochs, minibatches;
    int loss_type, aggregation, scale_rewards, kl_estimator;
    int mask_cut; /* completions without an end are not learnt */
    double clip_low, clip_high, dro_beta, kl_coef, entropy_coef;
    struct ppo_scratch *scratch; /* ppo_rollout.c; NULL before state_bytes() */
} ppo;

/** Whether a rollout is used for one update only: its old log-probabilities are then those of the
 *  graph, and need no input. */
static inline int ppo_updates_once(const ppo *p)
{
    return p->epochs == 1 && p->minibatches == 1;
}

/** lathe_stage_v1.loss */
lathe_status ppo_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out);

/** lathe_stage_v1.state_bytes and iterate */
lathe_status ppo_state_bytes(void *self, int32_t n_rows, int64_t row_tokens, int64_t *out);
lathe_status ppo_iterate(void *self, const lathe_run_api *api, void *run, void *state);

/** Advantages of n completions, in groups of p->group that continue the same prompt:
 *
 *   A_i = (r_i - mean of the group) / (std + 1e-4)
 *
 *  std (with n - 1) is that of the group, of the batch, or 1 without the 1e-4 (scale_rewards).
 *  Writes the figures reward, reward_std (of all n) and frac_reward_zero_std (share of the groups
 *  whose rewards are all equal, which teach nothing), as TRL computes them. */
void ppo_advantages(const ppo *p, const double *rewards, int32_t n, float *out,
                    double figures[PPO_N_FIGURES]);

/** Weights of the tokens of a sequence of `length` learnt tokens, so that the sum of weight * loss
 *  over the step, divided by its number of learnt tokens n_tokens, is the step's loss.
 *  n_sequences: those of the step. */
double ppo_weight(const ppo *p, int32_t length, int64_t n_tokens, int32_t n_sequences);

#endif

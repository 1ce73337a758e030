/* Settings of the stage ppo, and what its files share. */
#ifndef LATHE_STAGE_PPO_H
#define LATHE_STAGE_PPO_H

#include "lathe/plugin.h"
#include "lathe/reward.h"
#include "lathe/stage.h"
#include "lathe/stage_run.h"

/* Baselines with which the reward of a completion is compared; in the order of the choices of
 * advantage. */
enum { PPO_GROUP, PPO_GAE, PPO_N_ADVANTAGES };
/* The loss of a token; in the order of the choices of loss_type. */
enum { PPO_CLIPPED, PPO_CISPO, PPO_IMPORTANCE_SAMPLING, PPO_DRO, PPO_N_LOSSES };
/* Divisors of the losses of tokens; in the order of the choices of aggregation. */
enum { PPO_BY_TOKEN, PPO_BY_SEQUENCE, PPO_BY_CONSTANT, PPO_N_AGGREGATIONS };
enum { PPO_SCALE_GROUP, PPO_SCALE_BATCH, PPO_SCALE_NONE, PPO_N_SCALES };
enum { PPO_K1, PPO_K2, PPO_K3, PPO_N_ESTIMATORS };

/* Inputs of the loss, per token. */
enum {
    PPO_INPUT_ADVANTAGES,
    PPO_INPUT_OLD_LOGPROBS,
    PPO_INPUT_WEIGHTS,
    PPO_INPUT_OLD_VALUES,
    PPO_INPUT_RETURNS,
    PPO_INPUT_KL_COEF,
    PPO_N_INPUTS
};

/* Outputs of the loss, per token: of the policy, the critic and the reference model. */
enum { PPO_OUTPUT_LOGPROBS, PPO_OUTPUT_VALUES, PPO_OUTPUT_REFERENCE, PPO_N_OUTPUTS };

/* Figures of a step, in the order of ppo_figures. NaN: not with these settings. */
enum {
    PPO_REWARD,
    PPO_REWARD_STD,
    PPO_EQUAL_GROUPS,
    PPO_MEAN_LENGTH,
    PPO_CUT_SHARE,
    PPO_KL,
    PPO_KL_COEF,
    PPO_MEAN_VALUE,
    PPO_MEAN_RETURN,
    PPO_VAR_EXPLAINED,
    PPO_UNSCORED_SHARE,
    PPO_N_FIGURES
};

typedef struct ppo {
    const lathe_host *host;
    int32_t prompts, group, max_new_tokens, epochs, minibatches;
    int advantage, loss_type, aggregation, scale_rewards, kl_estimator;
    int mask_cut;          /* completions without an end are not learnt */
    int whiten_advantages; /* gae */
    int kl_in_reward;      /* the divergence is part of the reward, not of the loss */
    double clip_low, clip_high, dro_beta, kl_coef, entropy_coef;
    double gamma, lambda, vf_coef, cliprange_value; /* gae */
    double kl_target;                               /* 0: kl_coef does not change */
    int64_t kl_horizon;
    struct ppo_scratch *scratch; /* ppo_state.h; NULL before state_bytes() */
} ppo;

/** Whether a rollout is used for one update only: its old log-probabilities and values are then
 *  those of the graph, and need no input. */
static inline int ppo_updates_once(const ppo *p)
{
    return p->epochs == 1 && p->minibatches == 1;
}

/** Whether the divergence from the reference model is measured when a rollout is made. */
static inline int ppo_measures_kl(const ppo *p)
{
    return p->kl_coef > 0.0 && (p->kl_in_reward || p->kl_target > 0.0);
}

/** The plugin's keys (ppo_settings.c). */
enum { PPO_N_FIELDS = 25 };
extern const lathe_field ppo_fields[PPO_N_FIELDS];
/** Reads the values of the keys. LATHE_E_CONFIG: settings that contradict each other, or have no
 *  effect; the message begins with a key. */
lathe_status ppo_settings_read(const lathe_host *host, const lathe_value *values, ppo *out);

/** lathe_stage_v1.loss */
lathe_status ppo_loss(void *self, const lathe_stage_build *build, lathe_stage_loss *out);

/** lathe_stage_v1.state_bytes and iterate */
lathe_status ppo_state_bytes(void *self, int32_t n_rows, int64_t row_tokens, int64_t *out);
lathe_status ppo_iterate(void *self, const lathe_run_api *api, void *run, void *state);

/* ---- advantages relative to a group (ppo_advantages.c) ---- */

/** Advantages of n completions, in groups of p->group that continue the same prompt:
 *
 *   A_i = (r_i - mean of the group) / (std + 1e-4)
 *
 *  std (with n - 1) is that of the group, of the batch, or 1 without the 1e-4 (scale_rewards).
 *  Completions without a score (lathe_reward_is_no_score) have no part in means and std, and get
 * the advantage 0. Writes the figure frac_reward_zero_std, the share of the groups whose rewards
 * are all equal, which teach nothing, as TRL computes it; a group without any score is none of
 * them. */
void ppo_advantages(const ppo *p, const double *rewards, int32_t n, float *out,
                    double figures[PPO_N_FIGURES]);

/** Writes the figures reward and reward_std (of those with a score; NaN without any), and the share
 *  of those without, if there are some. */
void ppo_reward_figures(const double *rewards, int32_t n, double figures[PPO_N_FIGURES]);

/** Weights of the tokens of a sequence of `length` learnt tokens, so that the sum of weight * loss
 *  over the step, divided by its number of learnt tokens n_tokens, is the step's loss.
 *  n_sequences: those of the step. */
double ppo_weight(const ppo *p, int32_t length, int64_t n_tokens, int32_t n_sequences);

/* ---- generalized advantages (ppo_gae.c) ---- */

/** Generalized advantages and returns of one completion of n tokens, arXiv:1506.02438 eq. 16:
 *
 *   delta_t = reward_t + gamma V_{t+1} - V_t,   V_n = 0
 *   A_t = delta_t + gamma lambda A_{t+1},       return_t = A_t + V_t
 *
 *  rewards [n], values [n]: V_t, before token t is written. advantages may be `rewards`. */
void ppo_gae(const ppo *p, const float *rewards, const float *values, int32_t n, float *advantages,
             float *returns);

/** Numbers that follow each other, such as those of one completion's tokens. */
typedef struct ppo_span {
    float *x;
    int32_t n;
} ppo_span;

/** Mean and variance (with n - 1; 0 for one number) of all numbers of the spans. */
void ppo_moments(const ppo_span *spans, int32_t n_spans, double *out_mean, double *out_variance);

/** x = (x - mean) / sqrt(variance + 1e-8) for all numbers of the spans, in place. */
void ppo_whiten(const ppo_span *spans, int32_t n_spans);

/* ---- divergence from the reference model (ppo_kl.c) ---- */

/** The estimate of a token's divergence, with d = log p_ref - log p: -d, d^2/2 or exp(d) - d - 1
 *  (kl_estimator). */
double ppo_divergence(const ppo *p, double d);

/** The coefficient after a rollout of n completions whose mean divergence was kl: with
 *
 *   e = clip(kl / kl_target - 1, -0.2, 0.2)
 *
 *  it is coef (1 + e n / kl_horizon), arXiv:1909.08593 section 2.2 as TRL's AdaptiveKLController
 *  computes it. A kl of NaN leaves it as it is. */
double ppo_adapted_coef(const ppo *p, double coef, double kl, int32_t n);

#endif

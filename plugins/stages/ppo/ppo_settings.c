/* The keys of the stage ppo, and which settings contradict each other or have no effect. */
#include <string.h>

#include "ppo.h"

enum { MAX_COMPLETIONS = 1 << 16 };

enum {
    FIELD_PROMPTS,
    FIELD_GROUP,
    FIELD_MAX_NEW_TOKENS,
    FIELD_EPOCHS,
    FIELD_MINIBATCHES,
    FIELD_LOSS_TYPE,
    FIELD_AGGREGATION,
    FIELD_ADVANTAGE,
    FIELD_SCALE_REWARDS,
    FIELD_GAMMA,
    FIELD_LAMBDA,
    FIELD_WHITEN_ADVANTAGES,
    FIELD_VF_COEF,
    FIELD_CLIPRANGE_VALUE,
    FIELD_CLIP_LOW,
    FIELD_CLIP_HIGH,
    FIELD_DRO_BETA,
    FIELD_KL_COEF,
    FIELD_KL_ESTIMATOR,
    FIELD_KL_IN_REWARD,
    FIELD_KL_TARGET,
    FIELD_KL_HORIZON,
    FIELD_ENTROPY_COEF,
    FIELD_MASK_CUT,
    FIELD_STOP_TOKENS, /* the core reads it: run/decide/end_tokens.h */
    N_FIELDS
};

_Static_assert((int)N_FIELDS == (int)PPO_N_FIELDS,
               "the table of the plugin has the number of keys");

const lathe_field ppo_fields[N_FIELDS] = {
    LATHE_FIELD_INT("prompts", "8", 1, 65536, "prompts", "prompts of a rollout"),
    LATHE_FIELD_INT("group", "8", 1, 65536, "completions",
                    "completions of each prompt; advantage \"group\" compares their rewards with "
                    "each other, and needs at least 2"),
    LATHE_FIELD_INT("max_new_tokens", "256", 1, 1048576, "tokens",
                    "longest completion; its tokens are drawn at temperature 1 from all tokens, "
                    "whatever [generate] says"),
    LATHE_FIELD_INT("epochs", "1", 1, 1000, "epochs", "passes over a rollout"),
    LATHE_FIELD_INT("minibatches", "1", 1, 65536, "steps",
                    "optimizer steps of an epoch; each takes an equal part of the completions"),
    LATHE_FIELD_STRING(
        "loss_type", "\"ppo\"", "ppo|cispo|importance_sampling|dro",
        "loss of a token: the ratio clipped as in PPO; the log-probability times the "
        "ratio, bounded above and without gradient (CISPO); the plain ratio; or the "
        "log-probability, less a square of its change (DRO)"),
    LATHE_FIELD_STRING(
        "aggregation", "\"token\"", "token|sequence|constant",
        "mean over all tokens of a step (DAPO); over sequences of the mean over "
        "their tokens (GRPO); or the sum over sequences * max_new_tokens (Dr. GRPO)"),
    LATHE_FIELD_STRING("advantage", "\"group\"", "group|gae",
                       "advantage of a token: its completion's reward compared with the others of "
                       "the prompt (GRPO); or generalized advantages with a critic, a head that "
                       "learns the value of each token (PPO)"),
    LATHE_FIELD_STRING("scale_rewards", "\"group\"", "group|batch|none",
                       "advantages are divided by the standard deviation of the group's rewards, "
                       "of the rollout's, or by nothing (advantage \"group\")"),
    LATHE_FIELD_FLOAT("gamma", "1.0", 0.0, 1.0, "1", "discount of later rewards (gae)"),
    LATHE_FIELD_FLOAT("lambda", "0.95", 0.0, 1.0, "1",
                      "weight of later tokens in an advantage: 0 trusts the critic, 1 the rewards "
                      "(gae)"),
    LATHE_FIELD_BOOL("whiten_advantages", "true",
                     "the advantages of a rollout get the mean 0 and the variance 1 (gae)"),
    {"vf_coef", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.1", 0.0, 1e6, NULL, "1",
     "weight of the critic's loss (gae)"},
    {"cliprange_value", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.2", 0.0, 1e6, NULL, "1",
     "value clipping: the critic's loss is the larger of those of V and of "
     "V_old + clip(V - V_old, -this, this) (gae)"},
    {"clip_low", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.2", 0.0, 1.0, NULL, "1",
     "the ratio is clipped below 1 - clip_low (ppo)"},
    {"clip_high", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.2", 0.0, 1e6, NULL, "1",
     "the ratio is clipped above 1 + clip_high (ppo, cispo)"},
    LATHE_FIELD_FLOAT("dro_beta", "0.1", 0.0, 1e6, "1",
                      "weight of half the squared change of the log-probability (dro)"),
    LATHE_FIELD_FLOAT("kl_coef", "0.0", 0.0, 1e6, "1",
                      "weight of the KL divergence from the model before training; 0: no "
                      "reference model is kept"),
    LATHE_FIELD_STRING("kl_estimator", "\"k3\"", "k1|k2|k3",
                       "estimate of the divergence of a token, with d = log p_ref - log p: -d, "
                       "d^2 / 2, or exp(d) - d - 1"),
    LATHE_FIELD_BOOL("kl_in_reward", "false",
                     "the divergence of each token, times kl_coef, is subtracted from its reward "
                     "when a rollout is made, instead of being added to the loss"),
    LATHE_FIELD_FLOAT("kl_target", "0.0", 0.0, 1e6, "nats",
                      "divergence of a completion at which kl_coef is to keep the policy: after "
                      "each rollout it is raised or lowered; 0: it stays as it is"),
    LATHE_FIELD_INT("kl_horizon", "10000", 1, INT64_C(1) << 40, "completions",
                    "kl_target: a rollout of n completions changes kl_coef by at most "
                    "0.2 n / kl_horizon of it"),
    LATHE_FIELD_FLOAT("entropy_coef", "0.0", 0.0, 1e6, "1",
                      "weight of the entropy of the policy, which is made larger; 0: it is not "
                      "computed"),
    LATHE_FIELD_BOOL(
        "mask_cut", "false",
        "completions that reach max_new_tokens or the end of the row without an end are not "
        "learnt"),
    {"stop_tokens", LATHE_T_STRING_LIST, 0, "[]", 1.0, 0.0, NULL, NULL,
     "tokens by their name, such as \"<|im_end|>\", that end a completion in addition to the "
     "model's end tokens, the tokenizer's own, and the token that the chat template writes after "
     "an answer; at most 16"},
};

static const char *const advantages[] = {"group", "gae", NULL};
static const char *const loss_types[] = {"ppo", "cispo", "importance_sampling", "dro", NULL};
static const char *const aggregations[] = {"token", "sequence", "constant", NULL};
static const char *const scales[] = {"group", "batch", "none", NULL};
static const char *const estimators[] = {"k1", "k2", "k3", NULL};

/* Position of the value in the list. */
static int choice(const char *const *names, const char *value)
{
    int i = 0;
    while (names[i] && strcmp(names[i], value) != 0)
        i++;
    return i;
}

/* Warns of bounds that cannot act: a rollout that is learnt once has the ratio 1 throughout. */
static void warn_of_one_update(const lathe_host *host, const ppo *p, const lathe_value *values)
{
    static const int bounds[] = {FIELD_CLIP_LOW, FIELD_CLIP_HIGH, FIELD_DRO_BETA,
                                 FIELD_CLIPRANGE_VALUE};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds && ppo_updates_once(p); i++)
        if (values[bounds[i]].is_explicit)
            lathe_warn_at(host, ppo_fields[bounds[i]].key,
                          "%s has no effect: with epochs = 1 and minibatches = 1 each rollout is "
                          "learnt in one update, before which the policy has not changed",
                          ppo_fields[bounds[i]].key);
}

/* Refuses numbers of completions that do not fit each other. */
static lathe_status check_sizes(const lathe_host *host, const ppo *p)
{
    const int64_t n = (int64_t)p->prompts * p->group;
    if (n > MAX_COMPLETIONS)
        return lathe_fail_at(
            host, LATHE_E_CONFIG, "group",
            "group = %d completions of each of prompts = %d prompts are more than the "
            "%d that a rollout may have",
            p->group, p->prompts, MAX_COMPLETIONS);
    if (n % p->minibatches != 0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "minibatches",
                             "minibatches = %d does not divide the %lld completions of a rollout "
                             "(prompts = %d times group = %d)",
                             p->minibatches, (long long)n, p->prompts, p->group);
    return LATHE_OK;
}

/* Refuses settings of other losses. */
static lathe_status check_loss(const lathe_host *host, const ppo *p, const lathe_value *values)
{
    static const struct {
        int field;
        int losses; /* bits of the losses that read it */
    } owned[] = {{FIELD_CLIP_LOW, 1 << PPO_CLIPPED},
                 {FIELD_CLIP_HIGH, 1 << PPO_CLIPPED | 1 << PPO_CISPO},
                 {FIELD_DRO_BETA, 1 << PPO_DRO}};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        if (values[owned[i].field].is_explicit && !((owned[i].losses >> p->loss_type) & 1))
            return lathe_fail_at(host, LATHE_E_CONFIG, ppo_fields[owned[i].field].key,
                                 "%s has no meaning for loss_type \"%s\": leave it out",
                                 ppo_fields[owned[i].field].key, loss_types[p->loss_type]);
    return LATHE_OK;
}

/* Refuses settings of the other kind of advantages. */
static lathe_status check_advantage(const lathe_host *host, const ppo *p, const lathe_value *values)
{
    static const int of_critic[] = {FIELD_GAMMA, FIELD_LAMBDA, FIELD_WHITEN_ADVANTAGES,
                                    FIELD_VF_COEF, FIELD_CLIPRANGE_VALUE};
    for (size_t i = 0; i < sizeof of_critic / sizeof *of_critic && p->advantage != PPO_GAE; i++)
        if (values[of_critic[i]].is_explicit)
            return lathe_fail_at(host, LATHE_E_CONFIG, ppo_fields[of_critic[i]].key,
                                 "%s has no meaning for advantage \"group\", which has no critic: "
                                 "leave it out, or set advantage to \"gae\"",
                                 ppo_fields[of_critic[i]].key);
    if (p->advantage == PPO_GAE && values[FIELD_SCALE_REWARDS].is_explicit)
        return lathe_fail_at(
            host, LATHE_E_CONFIG, "scale_rewards",
            "scale_rewards has no meaning for advantage \"gae\", which compares no "
            "rewards within a group: leave it out, or use whiten_advantages");
    if (p->advantage == PPO_GROUP && p->group < 2)
        return lathe_fail_at(
            host, LATHE_E_CONFIG, "group",
            "group = 1 leaves no other completion of the prompt to compare with: set "
            "it to 2 or more, or advantage to \"gae\"");
    return LATHE_OK;
}

/* Refuses settings of a divergence that is not computed, or of a coefficient that does not adapt.
 */
static lathe_status check_divergence(const lathe_host *host, const ppo *p,
                                     const lathe_value *values)
{
    static const int of_divergence[] = {FIELD_KL_ESTIMATOR, FIELD_KL_IN_REWARD, FIELD_KL_TARGET,
                                        FIELD_KL_HORIZON};
    for (size_t i = 0; i < sizeof of_divergence / sizeof *of_divergence && !(p->kl_coef > 0.0); i++)
        if (values[of_divergence[i]].is_explicit)
            return lathe_fail_at(host, LATHE_E_CONFIG, ppo_fields[of_divergence[i]].key,
                                 "%s has no meaning without kl_coef: set kl_coef above 0",
                                 ppo_fields[of_divergence[i]].key);
    if (values[FIELD_KL_HORIZON].is_explicit && !(p->kl_target > 0.0))
        return lathe_fail_at(
            host, LATHE_E_CONFIG, "kl_horizon",
            "kl_horizon has no meaning without kl_target, which makes kl_coef adapt: "
            "set kl_target above 0, or leave kl_horizon out");
    if (p->kl_target > 0.0 && p->kl_horizon < (int64_t)p->prompts * p->group)
        return lathe_fail_at(host, LATHE_E_CONFIG, "kl_horizon",
                             "kl_horizon = %lld is less than the %lld completions of one rollout, "
                             "after which kl_coef would change by more than a fifth; expected at "
                             "least that many",
                             (long long)p->kl_horizon, (long long)p->prompts * p->group);
    return LATHE_OK;
}

lathe_status ppo_settings_read(const lathe_host *host, const lathe_value *values, ppo *out)
{
    *out = (ppo){.host = host,
                 .prompts = (int32_t)values[FIELD_PROMPTS].i,
                 .group = (int32_t)values[FIELD_GROUP].i,
                 .max_new_tokens = (int32_t)values[FIELD_MAX_NEW_TOKENS].i,
                 .epochs = (int32_t)values[FIELD_EPOCHS].i,
                 .minibatches = (int32_t)values[FIELD_MINIBATCHES].i,
                 .advantage = choice(advantages, values[FIELD_ADVANTAGE].s),
                 .loss_type = choice(loss_types, values[FIELD_LOSS_TYPE].s),
                 .aggregation = choice(aggregations, values[FIELD_AGGREGATION].s),
                 .scale_rewards = choice(scales, values[FIELD_SCALE_REWARDS].s),
                 .kl_estimator = choice(estimators, values[FIELD_KL_ESTIMATOR].s),
                 .mask_cut = values[FIELD_MASK_CUT].i != 0,
                 .whiten_advantages = values[FIELD_WHITEN_ADVANTAGES].i != 0,
                 .kl_in_reward = values[FIELD_KL_IN_REWARD].i != 0,
                 .clip_low = values[FIELD_CLIP_LOW].f,
                 .clip_high = values[FIELD_CLIP_HIGH].f,
                 .dro_beta = values[FIELD_DRO_BETA].f,
                 .kl_coef = values[FIELD_KL_COEF].f,
                 .entropy_coef = values[FIELD_ENTROPY_COEF].f,
                 .gamma = values[FIELD_GAMMA].f,
                 .lambda = values[FIELD_LAMBDA].f,
                 .vf_coef = values[FIELD_VF_COEF].f,
                 .cliprange_value = values[FIELD_CLIPRANGE_VALUE].f,
                 .kl_target = values[FIELD_KL_TARGET].f,
                 .kl_horizon = values[FIELD_KL_HORIZON].i};
    LATHE_TRY(check_sizes(host, out));
    LATHE_TRY(check_loss(host, out, values));
    LATHE_TRY(check_advantage(host, out, values));
    LATHE_TRY(check_divergence(host, out, values));
    warn_of_one_update(host, out, values);
    return LATHE_OK;
}

/* Policy optimization on completions that the model writes itself: PPO's clipped ratio with
 * advantages relative to a group of completions of the same prompt (GRPO and its variants).
 */
#include "ppo.h"

#include <string.h>

enum { MOST_COMPLETIONS = 1 << 16 };

enum {
    FIELD_PROMPTS,
    FIELD_GROUP,
    FIELD_MAX_NEW_TOKENS,
    FIELD_EPOCHS,
    FIELD_MINIBATCHES,
    FIELD_LOSS_TYPE,
    FIELD_AGGREGATION,
    FIELD_SCALE_REWARDS,
    FIELD_CLIP_LOW,
    FIELD_CLIP_HIGH,
    FIELD_DRO_BETA,
    FIELD_KL_COEF,
    FIELD_KL_ESTIMATOR,
    FIELD_ENTROPY_COEF,
    FIELD_MASK_CUT,
    N_FIELDS
};

static const lathe_field fields[N_FIELDS] = {
    LATHE_FIELD_INT("prompts", "8", 1, 65536, "prompts", "prompts of a rollout"),
    LATHE_FIELD_INT("group", "8", 2, 65536, "completions",
                    "completions of each prompt, whose rewards are compared with each other"),
    LATHE_FIELD_INT("max_new_tokens", "256", 1, 1048576, "tokens", "longest completion"),
    LATHE_FIELD_INT("epochs", "1", 1, 1000, "epochs", "how often a rollout is learnt"),
    LATHE_FIELD_INT("minibatches", "1", 1, 65536, "steps",
                    "optimizer steps of an epoch; they share out the rollout's completions"),
    LATHE_FIELD_STRING(
        "loss_type", "\"ppo\"", "ppo|cispo|importance_sampling|dro",
        "loss of a token: the ratio clipped as in PPO; the log-probability times the "
        "ratio, bounded above and without gradient (CISPO); the plain ratio; or the "
        "log-probability, less a square of its change (DRO)"),
    LATHE_FIELD_STRING(
        "aggregation", "\"token\"", "token|sequence|constant",
        "mean over all tokens of a step (DAPO); over sequences of the mean over "
        "their tokens (GRPO); or the sum over sequences * max_new_tokens (Dr. GRPO)"),
    LATHE_FIELD_STRING("scale_rewards", "\"group\"", "group|batch|none",
                       "advantages are divided by the standard deviation of the group's rewards, "
                       "of the rollout's, or by nothing"),
    {"clip_low", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.2", 0.0, 1.0, NULL, "1",
     "the ratio is clipped below 1 - clip_low (ppo)"},
    {"clip_high", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "0.2", 0.0, 1e6, NULL, "1",
     "the ratio is clipped above 1 + clip_high (ppo, cispo)"},
    LATHE_FIELD_FLOAT("dro_beta", "0.1", 0.0, 1e6, "1",
                      "weight of half the squared change of the log-probability (dro)"),
    LATHE_FIELD_FLOAT("kl_coef", "0.0", 0.0, 1e6, "1",
                      "weight of the divergence from the model before training; 0: no reference "
                      "model is kept"),
    LATHE_FIELD_STRING("kl_estimator", "\"k3\"", "k1|k2|k3",
                       "estimate of the divergence of a token, with d = log p_ref - log p: -d, "
                       "d^2 / 2, or exp(d) - d - 1"),
    LATHE_FIELD_FLOAT("entropy_coef", "0.0", 0.0, 1e6, "1",
                      "weight of the entropy of the policy, which is made larger; 0: it is not "
                      "computed"),
    LATHE_FIELD_BOOL("mask_cut", "false",
                     "completions that reach max_new_tokens without an end are not learnt"),
};

static const lathe_column columns[] = {
    {"prompt", 1, 0, "what the model completes; rewards see the record's other columns too"},
};

static const lathe_stage_input inputs[PPO_N_INPUTS] = {
    [PPO_INPUT_ADVANTAGES] = {.name = "advantages",
                              .per = LATHE_PER_TOKEN,
                              .doc = "advantage of the token's completion"},
    [PPO_INPUT_OLD_LOGPROBS] = {.name = "old_logprobs",
                                .per = LATHE_PER_TOKEN,
                                .doc =
                                    "log-probability under the policy that wrote the completion"},
    [PPO_INPUT_WEIGHTS] = {.name = "weights",
                           .per = LATHE_PER_TOKEN,
                           .doc = "weight of the token's loss in the step's mean"},
};

const lathe_stage_figure ppo_figures[PPO_N_FIGURES] = {
    [PPO_REWARD] = {"reward", "mean reward of the rollout's completions"},
    [PPO_REWARD_STD] = {"reward_std", "standard deviation of the rewards of the rollout"},
    [PPO_EQUAL_GROUPS] = {"frac_reward_zero_std", "share of groups whose rewards are all equal"},
    [PPO_MEAN_LENGTH] = {"completions/mean_length", "mean tokens of a completion"},
    [PPO_CUT_SHARE] = {"completions/clipped_ratio", "share of completions without an end"},
};

/* Position of the value in "a|b|c". */
static int choice(const char *const *names, const char *value)
{
    int i = 0;
    while (names[i] && strcmp(names[i], value) != 0)
        i++;
    return i;
}

static const char *const loss_types[] = {"ppo", "cispo", "importance_sampling", "dro", NULL};
static const char *const aggregations[] = {"token", "sequence", "constant", NULL};
static const char *const scales[] = {"group", "batch", "none", NULL};
static const char *const estimators[] = {"k1", "k2", "k3", NULL};

/* Warns of bounds that cannot act: a rollout that is learnt once has the ratio 1 throughout. */
static void warn_of_one_update(const lathe_host *host, const ppo *p, const lathe_value *values)
{
    static const int bounds[] = {FIELD_CLIP_LOW, FIELD_CLIP_HIGH, FIELD_DRO_BETA};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds && ppo_updates_once(p); i++)
        if (values[bounds[i]].is_explicit)
            lathe_warn(host,
                       "%s has no effect: with epochs = 1 and minibatches = 1 each rollout is "
                       "learnt in one update, before which the policy has not changed",
                       fields[bounds[i]].key);
}

/* Refuses settings without an effect. */
static lathe_status check(const lathe_host *host, const ppo *p, const lathe_value *values)
{
    if ((int64_t)p->prompts * p->group > MOST_COMPLETIONS)
        return lathe_fail(
            host, LATHE_E_CONFIG,
            "group = %d completions of each of prompts = %d prompts are more than the "
            "%d that a rollout may have",
            p->group, p->prompts, MOST_COMPLETIONS);
    if ((int64_t)p->prompts * p->group % p->minibatches != 0)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "minibatches = %d does not divide the %lld completions of a rollout "
                          "(prompts = %d times group = %d)",
                          p->minibatches, (long long)p->prompts * p->group, p->prompts, p->group);
    if (values[FIELD_CLIP_LOW].is_explicit && p->loss_type != PPO_CLIPPED)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "clip_low has no meaning for loss_type \"%s\": leave it out",
                          loss_types[p->loss_type]);
    if (values[FIELD_CLIP_HIGH].is_explicit && p->loss_type != PPO_CLIPPED &&
        p->loss_type != PPO_CISPO)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "clip_high has no meaning for loss_type \"%s\": leave it out",
                          loss_types[p->loss_type]);
    if (values[FIELD_DRO_BETA].is_explicit && p->loss_type != PPO_DRO)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "dro_beta has no meaning for loss_type \"%s\": leave it out",
                          loss_types[p->loss_type]);
    if (values[FIELD_KL_ESTIMATOR].is_explicit && !(p->kl_coef > 0.0))
        return lathe_fail(host, LATHE_E_CONFIG,
                          "kl_estimator has no meaning without kl_coef: set kl_coef above 0");
    return LATHE_OK;
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "ppo: got %d values, expected %d", n_values, N_FIELDS);
    const ppo settings = {.host = host,
                          .prompts = (int32_t)values[FIELD_PROMPTS].i,
                          .group = (int32_t)values[FIELD_GROUP].i,
                          .max_new_tokens = (int32_t)values[FIELD_MAX_NEW_TOKENS].i,
                          .epochs = (int32_t)values[FIELD_EPOCHS].i,
                          .minibatches = (int32_t)values[FIELD_MINIBATCHES].i,
                          .loss_type = choice(loss_types, values[FIELD_LOSS_TYPE].s),
                          .aggregation = choice(aggregations, values[FIELD_AGGREGATION].s),
                          .scale_rewards = choice(scales, values[FIELD_SCALE_REWARDS].s),
                          .kl_estimator = choice(estimators, values[FIELD_KL_ESTIMATOR].s),
                          .mask_cut = values[FIELD_MASK_CUT].i != 0,
                          .clip_low = values[FIELD_CLIP_LOW].f,
                          .clip_high = values[FIELD_CLIP_HIGH].f,
                          .dro_beta = values[FIELD_DRO_BETA].f,
                          .kl_coef = values[FIELD_KL_COEF].f,
                          .entropy_coef = values[FIELD_ENTROPY_COEF].f};
    LATHE_TRY(check(host, &settings, values));
    warn_of_one_update(host, &settings, values);
    ppo *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "ppo: no memory for the instance");
    *self = settings;
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    ppo *p = self;
    if (p == NULL)
        return;
    p->host->free(p->scratch);
    p->host->free(p);
}

static uint32_t needs_of(void *self)
{
    return LATHE_NEEDS_REWARD | (((const ppo *)self)->kl_coef > 0.0 ? LATHE_NEEDS_REFERENCE : 0);
}

static const lathe_stage_v1 table = {
    .size = sizeof table,
    .revision = LATHE_STAGE_REVISION,
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .rows = LATHE_ROWS_PROMPTS,
    .needs = LATHE_NEEDS_REFERENCE | LATHE_NEEDS_REWARD,
    .loss = ppo_loss,
    .inputs = inputs,
    .n_inputs = PPO_N_INPUTS,
    .iterate = ppo_iterate,
    .state_bytes = ppo_state_bytes,
    .figures = ppo_figures,
    .n_figures = PPO_N_FIGURES,
    .needs_of = needs_of,
    .headline = "reward",
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_STAGE,
    .revision = LATHE_STAGE_REVISION,
    .n_fields = N_FIELDS,
    .name = "ppo",
    .version = "1.0.0",
    .summary = "policy optimization on the model's own completions and their rewards",
    .source = "arXiv:1707.06347; groups: arXiv:2402.03300, 2503.20783, 2503.14476; cispo: "
              "arXiv:2506.13585",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};

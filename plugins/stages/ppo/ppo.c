/* Policy optimization on completions that the model writes itself: PPO's clipped ratio, with
 * advantages relative to a group of completions of the same prompt (GRPO and its variants), or
 * generalized advantages with a critic.
 */
#include "ppo.h"

static const lathe_column columns[] = {
    {"prompt", 1, 0, "what the model completes; rewards see the record's other columns too"},
};

static const lathe_stage_input inputs[PPO_N_INPUTS] = {
    [PPO_INPUT_ADVANTAGES] = {.name = "advantages",
                              .per = LATHE_PER_TOKEN,
                              .doc = "advantage of the token"},
    [PPO_INPUT_OLD_LOGPROBS] = {.name = "old_logprobs",
                                .per = LATHE_PER_TOKEN,
                                .doc =
                                    "log-probability under the policy that wrote the completion"},
    [PPO_INPUT_WEIGHTS] = {.name = "weights",
                           .per = LATHE_PER_TOKEN,
                           .doc = "weight of the token's loss in the step's mean"},
    [PPO_INPUT_OLD_VALUES] = {.name = "old_values",
                              .per = LATHE_PER_TOKEN,
                              .doc = "the critic's value when the rollout was made"},
    [PPO_INPUT_RETURNS] = {.name = "returns",
                           .per = LATHE_PER_TOKEN,
                           .doc =
                               "what the critic learns: advantage, not whitened, plus old value"},
    [PPO_INPUT_KL_COEF] = {.name = "kl_coef",
                           .per = LATHE_PER_TOKEN,
                           .doc = "weight of the divergence, where it adapts"},
};

static const lathe_stage_head heads[] = {
    {"value", 1, 0, "the critic: value of the text before each token"},
};

const lathe_stage_figure ppo_figures[PPO_N_FIGURES] = {
    [PPO_REWARD] = {"reward", "mean reward of the rollout's completions"},
    [PPO_REWARD_STD] = {"reward_std", "standard deviation of the rewards of the rollout"},
    [PPO_EQUAL_GROUPS] = {"frac_reward_zero_std", "share of groups whose rewards are all equal"},
    [PPO_MEAN_LENGTH] = {"completions/mean_length", "mean tokens of a completion"},
    [PPO_CUT_SHARE] = {"completions/clipped_ratio", "share of completions without an end"},
    [PPO_KL] = {"objective/kl", "mean divergence of the rollout's completions, summed over tokens"},
    [PPO_KL_COEF] = {"objective/kl_coef", "weight of the divergence, where it adapts"},
    [PPO_MEAN_VALUE] = {"val/mean", "mean of the critic's values when the rollout was made"},
    [PPO_MEAN_RETURN] = {"returns/mean", "mean of the returns, which the critic learns"},
    [PPO_VAR_EXPLAINED] = {"val/var_explained",
                           "share of the returns' variance that the values explain"},
    [PPO_UNSCORED_SHARE] = {"completions/unscored_ratio",
                            "share of completions that a reward gave no score, if there are some"},
};

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    ppo settings;
    if (n_values != PPO_N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values, PPO_N_FIELDS);
    LATHE_TRY(ppo_settings_read(host, values, &settings));
    ppo *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the instance");
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

static uint32_t heads_of(void *self)
{
    return ((const ppo *)self)->advantage == PPO_GAE;
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
    .heads = heads,
    .n_heads = sizeof heads / sizeof *heads,
    .heads_of = heads_of,
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
    .n_fields = PPO_N_FIELDS,
    .name = "ppo",
    .version = "1.0.0",
    .summary = "policy optimization on the model's own completions and their rewards",
    .source = "arXiv:1707.06347; groups: arXiv:2402.03300, 2503.20783, 2503.14476; critic: "
              "arXiv:1506.02438; adaptive coefficient: arXiv:1909.08593; cispo: arXiv:2506.13585",
    .license = "Apache-2.0",
    .fields = ppo_fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};

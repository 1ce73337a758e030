/* The rewards of a run, and the stage that asks for them. */
#include "support/run_case.h"

static const char *const base[] = {"model.model_type=llama",
                                   "model.vocab_size=64",
                                   "model.hidden_size=16",
                                   "model.num_hidden_layers=1",
                                   "model.num_attention_heads=2",
                                   "model.intermediate_size=32",
                                   "data.seq_len=16",
                                   "train.max_steps=2",
                                   "train.precision=fp32",
                                   "reward.name=length",
                                   "reward.tokens=8",
                                   NULL};

Test(reward_run, a_stage_that_scores_nothing_refuses_a_reward)
{
    lathe_run *run = NULL;
    cr_assert_eq(open_run_status(LATHE_OPEN_BATCHES, base, &run), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(),
                              "reward \"length\" has no effect: stage "
                              "\"pretrain\" scores nothing; take [reward] out"),
                       "%s", lathe_error_message());
}

Test(reward_run, a_reward_is_opened_and_closed_with_a_run_that_does_not_train)
{
    lathe_run *run = open_run(LATHE_OPEN_PLAN, base);
    cr_assert_eq(run->parts.n_rewards, 1);
    cr_expect_str_eq(run->parts.rewards[0].component->plugin->name, "length");
    cr_expect_not_null(run->rewards);
    lathe_run_close(run);
}

Test(reward_run, what_a_reward_refuses_has_the_place_of_its_key)
{
    lathe_run *run = NULL;
    const char *settings[MAX_SETTINGS];
    int n = 0;
    for (; base[n] != NULL; n++)
        settings[n] = base[n];
    settings[n++] = "reward.buffer_tokens=9";
    settings[n] = NULL;
    cr_assert_eq(open_run_status(LATHE_OPEN_PLAN, settings, &run), LATHE_E_CONFIG);
    cr_expect_not_null(strstr(lathe_error_message(),
                              "--reward.buffer_tokens: error: reward length: "
                              "buffer_tokens is 9, expected at most tokens = 8"),
                       "%s", lathe_error_message());
}

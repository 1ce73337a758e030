/* The reward for length: by hand, against TRL, and refusals. */
#include <criterion/criterion.h>
#include <string.h>

#include "lathe/kit/testing.h"
#include "lathe/reward.h"

static double score(const char *settings, int32_t n_tokens)
{
    const lathe_plugin *plugin = lathe_test_open(LATHE_TEST_PLUGIN);
    const lathe_reward_v1 *table = plugin->table;
    const lathe_reward_item item = {.size = (uint32_t)sizeof item,
                                    .n_tokens = n_tokens,
                                    .prompt = "",
                                    .completion = "",
                                    .record = "{}",
                                    .record_bytes = 2};
    double out = 99.0;
    void *self;
    cr_assert_eq(lathe_test_create(plugin, settings, &self), LATHE_OK, "%s", lathe_test_message);
    cr_assert_eq(table->score(self, &item, 1, &out), LATHE_OK);
    plugin->destroy(self);
    return out;
}

static void refused(const char *settings, const char *message)
{
    void *self;
    cr_expect_eq(lathe_test_create(lathe_test_open(LATHE_TEST_PLUGIN), settings, &self),
                 LATHE_E_CONFIG);
    cr_expect_str_eq(lathe_test_message, message);
}

/* get_soft_overlong_punishment(max_completion_len=100, soft_punish_cache=20) of TRL 1.16. */
Test(length_reward, overlong_completions_are_punished_as_in_trl)
{
    const struct {
        int32_t n;
        double want;
    } cases[] = {{0, 0.0},    {79, 0.0},   {80, 0.0},   {81, -0.05}, {90, -0.5},
                 {99, -0.95}, {100, -1.0}, {101, -1.0}, {5000, -1.0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_expect_float_eq(score("tokens=100 buffer_tokens=20", cases[i].n), cases[i].want, 1e-15,
                           "%d tokens", cases[i].n);
}

Test(length_reward, without_a_buffer_the_punishment_is_all_or_nothing)
{
    cr_expect_eq(score("tokens=100", 100), 0.0);
    cr_expect_eq(score("tokens=100", 101), -1.0);
    cr_expect_eq(score("tokens=100", 0), 0.0);
}

Test(length_reward, a_target_falls_on_both_sides)
{
    cr_expect_eq(score("tokens=8 rule=target", 8), 0.0);
    cr_expect_eq(score("tokens=8 rule=target", 6), -0.25);
    cr_expect_eq(score("tokens=8 rule=target", 10), -0.25);
    cr_expect_eq(score("tokens=8 rule=target", 0), -1.0);
    cr_expect_eq(score("tokens=8 rule=target", 1000), -1.0);
}

Test(length_reward, settings_that_contradict_each_other_are_refused)
{
    refused("tokens=8 buffer_tokens=9", "buffer_tokens is 9, expected at most tokens = 8");
    refused("tokens=8 rule=target buffer_tokens=2",
            "buffer_tokens has no effect with rule = \"target\": take it out");
}

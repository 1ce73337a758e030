/* ppo: advantages and figures of groups, and weights of tokens, against TRL. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "ppo_advantages.c"

enum { MAX = 64 };

static FILE *open_golden(void)
{
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/ppo.txt", "r");
    cr_assert_not_null(file);
    return file;
}

/* Position of the value in "a|b|c". */
static int choice(const char *names, const char *value)
{
    int i = 0;
    for (; strncmp(names, value, strlen(value)) != 0; i++)
        names = strchr(names, '|') + 1;
    return i;
}

/* Moves to the next line that begins with this word; 0: there is none. */
static int find(FILE *file, const char *name)
{
    char word[4096];
    while (fscanf(file, "%4095s", word) == 1) {
        if (strcmp(word, name) == 0)
            return 1;
        cr_assert_geq(fscanf(file, "%*[^\n]"), 0);
    }
    return 0;
}

static void read_line(FILE *file, const char *name, double *out, int n)
{
    cr_assert(find(file, name), "%s", name);
    for (int i = 0; i < n; i++)
        cr_assert_eq(fscanf(file, "%lf", &out[i]), 1);
}

/* Advantages are f32: half a unit in the last place of numbers below 2 is 6e-8. TRL divides counts
 * in f32, so that its deviations err by as much. */
Test(ppo_advantages, advantages_and_figures_of_groups_agree_with_trl)
{
    FILE *file = open_golden();
    char scale[16];
    int cases = 0, group, n;
    for (; find(file, "group"); cases++) {
        double rewards[MAX], want[MAX], figures[3], got[PPO_N_FIGURES];
        float advantages[MAX];
        cr_assert_eq(fscanf(file, "%15s %d %d", scale, &group, &n), 3);
        read_line(file, "rewards", rewards, n);
        read_line(file, "advantages", want, n);
        read_line(file, "figures", figures, 3);
        const ppo p = {.group = group, .scale_rewards = choice("group|batch|none", scale)};
        ppo_advantages(&p, rewards, n, advantages, got);
        ppo_reward_figures(rewards, n, got);
        for (int i = 0; i < n; i++)
            cr_expect_float_eq((double)advantages[i], want[i], 2e-7, "%s %d: %.9g, TRL has %.9g",
                               scale, i, (double)advantages[i], want[i]);
        cr_expect_float_eq(got[PPO_REWARD], figures[0], 1e-12);
        cr_expect_float_eq(got[PPO_REWARD_STD], figures[1], 2e-7, "%.17g, TRL has %.17g",
                           got[PPO_REWARD_STD], figures[1]);
        /* TRL has one deviation for the whole batch there, and calls it that of every group */
        if (strcmp(scale, "batch") != 0)
            cr_expect_float_eq(got[PPO_EQUAL_GROUPS], figures[2], 1e-12);
    }
    cr_expect_eq(cases, 4);
    (void)fclose(file);
}

Test(ppo_advantages, groups_of_equal_rewards_are_counted_and_teach_nothing)
{
    const double rewards[4] = {0.5, 0.5, 0.5, 0.5};
    const ppo p = {.group = 2, .scale_rewards = PPO_SCALE_GROUP};
    double figures[PPO_N_FIGURES];
    float out[4];
    ppo_advantages(&p, rewards, 4, out, figures);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(out[i], 0.0f);
    cr_expect_eq(figures[PPO_EQUAL_GROUPS], 1.0);
}

Test(ppo_advantages, weights_of_tokens_are_those_of_trls_aggregations)
{
    FILE *file = open_golden();
    char type[32], aggregation[16], kl[8];
    int cases = 0, rows, tokens, max_new_tokens;
    for (; find(file, "case"); cases++) {
        double mask[MAX], weights[MAX], ignored[4];
        int64_t n = 0;
        cr_assert_eq(fscanf(file, "%31s %15s %lf %lf %7s %lf %lf %d %d %d", type, aggregation,
                            &ignored[0], &ignored[1], kl, &ignored[2], &ignored[3], &rows, &tokens,
                            &max_new_tokens),
                     10);
        read_line(file, "mask", mask, rows * tokens);
        read_line(file, "weights", weights, rows * tokens);
        const ppo p = {.max_new_tokens = max_new_tokens,
                       .aggregation = choice("token|sequence|constant", aggregation)};
        for (int i = 0; i < rows * tokens; i++)
            n += mask[i] != 0.0;
        for (int row = 0; row < rows; row++) {
            int32_t length = 0;
            for (int t = 0; t < tokens; t++)
                length += mask[row * tokens + t] != 0.0;
            for (int t = 0; t < length; t++)
                cr_expect_float_eq(ppo_weight(&p, length, n, rows), weights[row * tokens + t],
                                   1e-12, "%s, row %d", aggregation, row);
        }
    }
    cr_expect_eq(cases, 15);
    (void)fclose(file);
}

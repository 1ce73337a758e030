/* ppo: generalized advantages and the coefficient of the divergence, against TRL. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "ppo_gae.c"
#include "ppo_kl.c"

enum { MAX = 64 };

static FILE *open_golden(void)
{
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/ppo.txt", "r");
    cr_assert_not_null(file);
    return file;
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

/* Inputs and results are f32, and numbers are below 8: an advantage sums at most 6 tokens, each
 * wrong by 2.4e-7. Whitening divides by a deviation above 0.5. */
Test(ppo_gae, advantages_returns_and_whitening_agree_with_trl)
{
    FILE *file = open_golden();
    int cases = 0, rows, tokens;
    for (; find(file, "gae"); cases++) {
        double mask[MAX], values[MAX], rewards[MAX], advantages[MAX], returns[MAX];
        double whitened[MAX];
        float got[MAX] = {0}, got_returns[MAX] = {0}, r[MAX], v[MAX];
        ppo_span spans[MAX];
        ppo p = {.advantage = PPO_GAE};
        cr_assert_eq(fscanf(file, "%lf %lf %d %d", &p.gamma, &p.lambda, &rows, &tokens), 4);
        const int n = rows * tokens;
        read_line(file, "mask", mask, n);
        read_line(file, "values", values, n);
        read_line(file, "rewards", rewards, n);
        read_line(file, "advantages", advantages, n);
        read_line(file, "returns", returns, n);
        read_line(file, "whitened", whitened, n);
        for (int i = 0; i < n; i++) {
            r[i] = (float)rewards[i];
            v[i] = (float)values[i];
        }
        for (int row = 0; row < rows; row++) {
            int32_t length = 0;
            while (length < tokens && mask[row * tokens + length] != 0.0)
                length++;
            const int at = row * tokens;
            ppo_gae(&p, r + at, v + at, length, got + at, got_returns + at);
            spans[row] = (ppo_span){got + at, length};
        }
        for (int i = 0; i < n; i++) {
            cr_expect_float_eq((double)got[i], advantages[i], 1.5e-6, "%d: %g", i, advantages[i]);
            cr_expect_float_eq((double)got_returns[i], returns[i], 1.5e-6, "%d", i);
        }
        ppo_whiten(spans, rows);
        for (int i = 0; i < n; i++)
            cr_expect_float_eq((double)got[i], whitened[i], 3e-6, "%d: %g", i, whitened[i]);
    }
    cr_expect_eq(cases, 3);
    (void)fclose(file);
}

/* By hand, with gamma = lambda = 1/2: delta = (0.5*2 - 1, 0.5*3 - 2, 4 - 3) = (0, -0.5, 1);
 * A_2 = 1, A_1 = -0.5 + 1/4, A_0 = -0.25/4. Input and output may be the same memory. */
Test(ppo_gae, three_tokens_by_hand)
{
    const ppo p = {.gamma = 0.5, .lambda = 0.5};
    float x[3] = {0, 0, 4}, returns[3];
    const float values[3] = {1, 2, 3};
    ppo_gae(&p, x, values, 3, x, returns);
    cr_expect_eq(x[0], -0.0625f);
    cr_expect_eq(x[1], -0.25f);
    cr_expect_eq(x[2], 1.0f);
    cr_expect_eq(returns[0], 0.9375f);
    cr_expect_eq(returns[2], 4.0f);
}

Test(ppo_gae, one_number_and_equal_numbers_are_whitened_to_0)
{
    float one[1] = {3}, equal[4] = {0.5f, 0.5f, 0.5f, 0.5f};
    const ppo_span single = {one, 1}, pair[2] = {{equal, 1}, {equal + 1, 3}};
    double mean, variance;
    ppo_moments(pair, 0, &mean, &variance);
    cr_expect_eq(mean, 0.0);
    cr_expect_eq(variance, 0.0);
    ppo_whiten(&single, 1);
    ppo_whiten(pair, 2);
    cr_expect_eq(one[0], 0.0f);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(equal[i], 0.0f);
}

Test(ppo_gae, the_coefficient_adapts_as_trls_controller)
{
    FILE *file = open_golden();
    int cases = 0, completions, n;
    double horizon;
    for (; find(file, "controller"); cases++) {
        double coef, measured[MAX], want[MAX];
        ppo p = {.kl_coef = 0.0};
        cr_assert_eq(
            fscanf(file, "%lf %lf %lf %d %d", &coef, &p.kl_target, &horizon, &completions, &n), 5);
        p.kl_horizon = (int64_t)horizon;
        read_line(file, "measured", measured, n);
        read_line(file, "coefficients", want, n);
        for (int i = 0; i < n; i++) {
            coef = ppo_adapted_coef(&p, coef, measured[i], completions);
            cr_expect_float_eq(coef, want[i], 1e-15, "%d: %.17g, TRL has %.17g", i, coef, want[i]);
        }
        cr_expect_eq(ppo_adapted_coef(&p, coef, (double)NAN, completions), coef);
    }
    cr_expect_eq(cases, 2);
    (void)fclose(file);
}

Test(ppo_gae, estimates_of_the_divergence_are_their_formulas)
{
    const double d = -0.75;
    ppo p = {.kl_estimator = PPO_K1};
    cr_expect_eq(ppo_divergence(&p, d), 0.75);
    p.kl_estimator = PPO_K2;
    cr_expect_eq(ppo_divergence(&p, d), 0.28125);
    p.kl_estimator = PPO_K3;
    cr_expect_float_eq(ppo_divergence(&p, d), exp(d) - d - 1.0, 1e-15);
}

/* ppo: iterate() with a run that is not there: what it makes of the rewards, the critic's values
 * and the divergence, against TRL. Above 500 lines because all tests share that run. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "lathe/stage.h"
#include "lathe/stage_run.h"
#include "mock_graph.h"
#include "mock_plugin.h"

enum { MAX = 64, ROWS = 8, BATCH = 2, FIRST = 2 /* tokens of a prompt */ };

/* A block "penalty" of golden/data/ppo.txt; arrays [rows * tokens]. */
typedef struct golden {
    char kl[8];
    double kl_coef, gamma, lambda;
    int rows, tokens;
    double mask[MAX], logp[MAX], reference[MAX], values[MAX], scores[ROWS];
    double returns[MAX], whitened[MAX], mean_kl;
} golden;

static golden c;

/* The run that iterate() sees: the golden data's completions, and what it was given back. */
static struct {
    double figures[LATHE_MAX_STAGE_FIGURES];
    float got[LATHE_MAX_STAGE_INPUTS][MAX]; /* inputs of the targets, as in the golden data */
    int32_t learnt[ROWS];                   /* targets of each completion in this step */
    int32_t n_rollouts;
    int32_t n_evaluated; /* rows of all evaluations */
    int32_t stops;
} seen;

static int32_t length_of(int32_t i)
{
    int32_t n = 0;
    while (n < c.tokens && c.mask[i * c.tokens + n] != 0.0)
        n++;
    return n;
}

static lathe_status prompts(void *run, int32_t n, lathe_stage_prompt *out)
{
    static const int32_t tokens[FIRST] = {1, 2};
    (void)run;
    for (int32_t i = 0; i < n; i++)
        out[i] = (lathe_stage_prompt){.tokens = tokens, .n_tokens = FIRST, .record = "{}"};
    return LATHE_OK;
}

/* The tokens of completion i are 100 + i, so that a batch shows which rows it has. */
static lathe_status generate(void *run, const lathe_prompt *list, int32_t n,
                             const lathe_sampling *sampling, lathe_generation *out)
{
    static int32_t tokens[MAX];
    (void)run, (void)list, (void)sampling;
    seen.n_rollouts++;
    for (int32_t i = 0; i < n; i++) {
        for (int32_t t = 0; t < c.tokens; t++)
            tokens[i * c.tokens + t] = 100 + i;
        out[i].tokens = tokens + i * c.tokens;
        out[i].n_tokens = length_of(i);
        out[i].finish = i == 1 ? LATHE_FINISH_LENGTH : LATHE_FINISH_EOS;
    }
    return LATHE_OK;
}

static lathe_status reward(void *run, const lathe_stage_completion *completions, int32_t n,
                           double *out)
{
    (void)run;
    for (int32_t i = 0; i < n; i++) {
        cr_assert_eq(completions[i].n_tokens, length_of(i));
        out[i] = c.scores[i];
    }
    return LATHE_OK;
}

/* The completion in row r of a batch. */
static int32_t completion_of(const lathe_run_batch *b, int32_t r)
{
    return b->tokens[r * b->row_tokens + FIRST] - 100;
}

static lathe_status outputs(void *run, const lathe_run_batch *b, float *const *out)
{
    const double *const of[3] = {c.logp, c.values, c.reference};
    (void)run;
    for (int32_t r = 0; r < b->n_rows; r++) {
        const int32_t i = completion_of(b, r);
        seen.n_evaluated++;
        for (int32_t t = 0; t < b->row_tokens; t++) {
            const int64_t at = (int64_t)r * b->row_tokens + t;
            const int32_t k = t + 1 - FIRST;
            const int is_target = k >= 0 && k < length_of(i);
            cr_assert_eq(b->targets[at], is_target ? 100 + i : -1);
            for (int x = 0; x < 3; x++) /* values that are no target must not be read */
                out[x][at] = is_target ? (float)of[x][i * c.tokens + k] : 1e9f;
        }
    }
    return LATHE_OK;
}

static lathe_status accumulate(void *run, const lathe_run_batch *b)
{
    (void)run;
    for (int32_t r = 0; r < b->n_rows; r++) {
        const int32_t i = completion_of(b, r);
        for (int32_t t = 0; t < b->row_tokens; t++) {
            const int64_t at = (int64_t)r * b->row_tokens + t;
            const int32_t k = t + 1 - FIRST;
            seen.learnt[i] += b->targets[at] >= 0;
            for (int32_t x = 0; x < b->n_inputs; x++)
                if (b->targets[at] >= 0)
                    seen.got[x][i * c.tokens + k] = ((const float *)b->inputs[x].values)[at];
                else
                    cr_assert_eq(((const float *)b->inputs[x].values)[at], 0.0f, "%s",
                                 b->inputs[x].name);
        }
    }
    return LATHE_OK;
}

static void figure(void *run, int32_t index, double value)
{
    (void)run;
    seen.figures[index] = value;
}

static uint64_t random_word(void *run, uint64_t index)
{
    (void)run;
    return index * UINT64_C(0x9E3779B97F4A7C15);
}

static int32_t stops(void *run)
{
    (void)run;
    return seen.stops;
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

static int read_case(FILE *file)
{
    if (!find(file, "penalty"))
        return 0;
    cr_assert_eq(fscanf(file, "%7s %lf %lf %lf %d %d", c.kl, &c.kl_coef, &c.gamma, &c.lambda,
                        &c.rows, &c.tokens),
                 6);
    const int n = c.rows * c.tokens;
    cr_assert_leq(n, MAX);
    read_line(file, "mask", c.mask, n);
    read_line(file, "logp", c.logp, n);
    read_line(file, "reference", c.reference, n);
    read_line(file, "values", c.values, n);
    read_line(file, "scores", c.scores, c.rows);
    read_line(file, "returns", c.returns, n);
    read_line(file, "whitened", c.whitened, n);
    read_line(file, "kl", &c.mean_kl, 1);
    return 1;
}

static FILE *open_golden(void)
{
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/ppo.txt", "r");
    cr_assert_not_null(file);
    return file;
}

static void read_first_case(void)
{
    FILE *file = open_golden();
    cr_assert(read_case(file));
    (void)fclose(file);
    cr_assert_str_eq(c.kl, "k1");
}

/* An instance and its state. */
typedef struct subject {
    const lathe_plugin *plugin;
    lathe_value values[MOCK_MAX_FIELDS];
    void *self;
    _Alignas(64) char state[16384];
} subject;

static subject x;

/* The settings of the golden case without advantages; to be changed before open_subject. Settings
 * that have no meaning are refused, so each is given only where it has one. */
static void set_plain(void)
{
    x.plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    memset(&seen, 0, sizeof seen);
    memset(x.state, 0, sizeof x.state);
    mock_defaults(x.plugin, x.values);
    mock_value(x.plugin, x.values, "max_new_tokens")->i = c.tokens;
    mock_value(x.plugin, x.values, "epochs")->i = 2;
    mock_value(x.plugin, x.values, "kl_coef")->f = c.kl_coef;
    if (c.kl_coef > 0.0) {
        mock_value(x.plugin, x.values, "kl_estimator")->s = c.kl;
        mock_value(x.plugin, x.values, "kl_in_reward")->i = 1;
    }
}

/* Sets the golden case with its critic. */
static void set_case(void)
{
    set_plain();
    mock_value(x.plugin, x.values, "prompts")->i = c.rows;
    mock_value(x.plugin, x.values, "group")->i = 1;
    mock_value(x.plugin, x.values, "advantage")->s = "gae";
    mock_value(x.plugin, x.values, "gamma")->f = c.gamma;
    mock_value(x.plugin, x.values, "lambda")->f = c.lambda;
}

static void open_subject(void)
{
    const lathe_stage_v1 *stage = x.plugin->table;
    int64_t bytes = 0;
    cr_assert_eq(x.plugin->create(mock_host(), x.values, x.plugin->n_fields, &x.self), LATHE_OK,
                 "%s", mock_host_error());
    cr_assert_eq(stage->state_bytes(x.self, BATCH, FIRST + c.tokens, &bytes), LATHE_OK);
    cr_assert_leq(bytes, (int64_t)sizeof x.state);
}

static void step(void)
{
    const lathe_stage_v1 *stage = x.plugin->table;
    const lathe_run_api api = {.size = sizeof api,
                               .n_rows = BATCH,
                               .row_tokens = FIRST + c.tokens,
                               .prompts = prompts,
                               .generate = generate,
                               .reward = reward,
                               .accumulate = accumulate,
                               .figure = figure,
                               .random = random_word,
                               .stops = stops,
                               .outputs = outputs};
    memset(seen.learnt, 0, sizeof seen.learnt);
    cr_assert_eq(stage->iterate(x.self, &api, &seen, x.state), LATHE_OK);
}

static int input(const char *name)
{
    const lathe_stage_v1 *stage = x.plugin->table;
    int i = 0;
    while (strcmp(stage->inputs[i].name, name) != 0)
        i++;
    return i;
}

static double figure_of(const char *name)
{
    const lathe_stage_v1 *stage = x.plugin->table;
    int i = 0;
    while (strcmp(stage->figures[i].name, name) != 0)
        i++;
    return seen.figures[i];
}

static void expect_input(const char *name, const double *want, double tolerance)
{
    const float *got = seen.got[input(name)];
    for (int i = 0; i < c.rows * c.tokens; i++)
        cr_expect_float_eq((double)got[i], c.mask[i] != 0.0 ? want[i] : 0.0, tolerance,
                           "%s %d: %.9g, TRL has %.9g", name, i, (double)got[i], want[i]);
}

/* Inputs and results are f32 (test_ppo_gae.c), and the divergence of a token is below 2. */
Test(ppo_rollout, penalties_advantages_and_returns_agree_with_trl)
{
    FILE *file = open_golden();
    int cases = 0;
    for (; read_case(file); cases++) {
        set_case();
        open_subject();
        for (int k = 0; k < 2; k++) { /* both epochs learn the same */
            memset(seen.got, 0, sizeof seen.got);
            step();
            expect_input("advantages", c.whitened, 4e-6);
            expect_input("returns", c.returns, 3e-6);
            expect_input("old_values", c.values, 1e-6);
            expect_input("old_logprobs", c.logp, 1e-6);
        }
        cr_expect_eq(seen.n_evaluated, c.rows, "a rollout is evaluated once");
        if (c.kl_coef > 0.0)
            cr_expect_float_eq(figure_of("objective/kl"), c.mean_kl, 2e-6, "%g, TRL has %g",
                               figure_of("objective/kl"), c.mean_kl);
        else
            cr_expect(isnan(figure_of("objective/kl")));
        cr_expect(isnan(figure_of("frac_reward_zero_std")));
        x.plugin->destroy(x.self);
    }
    cr_expect_eq(cases, 4);
    (void)fclose(file);
}

/* mean and sum of squared differences from it, over the targets */
static double moment(const double *values, double *out_squares)
{
    double sum = 0.0, n = 0.0;
    for (int i = 0; i < c.rows * c.tokens; i++) {
        sum += c.mask[i] * values[i];
        n += c.mask[i];
    }
    *out_squares = 0.0;
    for (int i = 0; i < c.rows * c.tokens; i++)
        *out_squares += c.mask[i] * (values[i] - sum / n) * (values[i] - sum / n);
    return sum / n;
}

Test(ppo_rollout, figures_tell_how_good_the_critic_is)
{
    double errors[MAX] = {0}, of_returns, of_errors, of_values;
    read_first_case();
    set_case();
    open_subject();
    step();
    for (int i = 0; i < c.rows * c.tokens; i++)
        errors[i] = c.returns[i] - c.values[i];
    const double mean = moment(c.returns, &of_returns), value = moment(c.values, &of_values);
    (void)moment(errors, &of_errors);
    cr_expect_float_eq(figure_of("returns/mean"), mean, 2e-6);
    cr_expect_float_eq(figure_of("val/mean"), value, 2e-6);
    cr_expect_float_eq(figure_of("val/var_explained"), 1.0 - of_errors / of_returns, 1e-5);
    x.plugin->destroy(x.self);
}

/* Without whitening the advantages are returns less values. */
Test(ppo_rollout, advantages_may_stay_as_they_are)
{
    double advantages[MAX] = {0};
    read_first_case();
    set_case();
    mock_value(x.plugin, x.values, "whiten_advantages")->i = 0;
    open_subject();
    step();
    for (int i = 0; i < c.rows * c.tokens; i++)
        advantages[i] = c.returns[i] - c.values[i];
    expect_input("advantages", advantages, 3e-6);
    x.plugin->destroy(x.self);
}

/* Completion 1 is cut: neither its tokens nor its advantages count. */
Test(ppo_rollout, masked_completions_are_not_whitened_with_the_others)
{
    double advantages[MAX] = {0}, keep[MAX], squares, n = 0.0;
    read_first_case();
    set_case();
    mock_value(x.plugin, x.values, "mask_cut")->i = 1;
    open_subject();
    step();
    memcpy(keep, c.mask, sizeof keep);
    for (int i = 0; i < c.rows * c.tokens; i++) {
        advantages[i] = c.returns[i] - c.values[i];
        if (i / c.tokens == 1)
            c.mask[i] = 0.0;
        n += c.mask[i];
    }
    const double mean = moment(advantages, &squares);
    for (int i = 0; i < c.rows * c.tokens; i++)
        advantages[i] = (advantages[i] - mean) / sqrt(squares / (n - 1.0) + 1e-8);
    expect_input("advantages", advantages, 4e-6);
    memcpy(c.mask, keep, sizeof keep);
    cr_expect_eq(seen.learnt[1], 0);
    cr_expect_eq(seen.learnt[0], length_of(0));
    x.plugin->destroy(x.self);
}

/* Groups compare rewards from which the divergence of the whole completion is subtracted; the
 * figure is the reward itself. */
Test(ppo_rollout, groups_compare_rewards_less_the_divergence)
{
    double rewards[ROWS], mean_score = 0.0;
    read_first_case();
    set_plain();
    mock_value(x.plugin, x.values, "prompts")->i = c.rows / 2;
    mock_value(x.plugin, x.values, "group")->i = 2;
    mock_value(x.plugin, x.values, "scale_rewards")->s = "none";
    open_subject();
    step();
    for (int i = 0; i < c.rows; i++) {
        rewards[i] = c.scores[i];
        mean_score += c.scores[i] / c.rows;
        for (int t = 0; t < c.tokens; t++)
            rewards[i] -= c.kl_coef * c.mask[i * c.tokens + t] *
                          (c.logp[i * c.tokens + t] - c.reference[i * c.tokens + t]);
    }
    for (int i = 0; i < c.rows; i++)
        for (int t = 0; t < length_of(i); t++)
            cr_expect_float_eq((double)seen.got[input("advantages")][i * c.tokens + t],
                               rewards[i] - (rewards[i / 2 * 2] + rewards[i / 2 * 2 + 1]) / 2.0,
                               1e-6, "completion %d", i);
    cr_expect_float_eq(figure_of("reward"), mean_score, 1e-12);
    cr_expect_float_eq(figure_of("objective/kl"), c.mean_kl, 2e-6);
    x.plugin->destroy(x.self);
}

/* The first rollout has kl_coef; the second what its divergence makes of it, in all its steps. */
Test(ppo_rollout, the_coefficient_follows_the_divergence_of_the_rollout_before)
{
    read_first_case();
    set_case();
    mock_value(x.plugin, x.values, "kl_in_reward")->i = 0; /* it weighs the loss */
    mock_value(x.plugin, x.values, "kl_target")->f = 1e-3;
    mock_value(x.plugin, x.values, "kl_horizon")->i = 8;
    open_subject();
    const double sign = c.mean_kl > 1e-3 ? 1.0 : -1.0;
    const double second = c.kl_coef * (1.0 + sign * 0.2 * c.rows / 8.0);
    const double want[4] = {c.kl_coef, c.kl_coef, second, second};
    for (int k = 0; k < 4; k++) {
        step();
        cr_expect_float_eq(figure_of("objective/kl_coef"), want[k], 1e-12, "step %d", k);
        cr_expect_float_eq((double)seen.got[input("kl_coef")][0], want[k], 1e-8, "step %d", k);
    }
    x.plugin->destroy(x.self);
}

/* The returns of the golden case with another weight of its divergence, k1. */
static void returns_with(double coef, double *out)
{
    for (int i = 0; i < c.rows; i++) {
        double advantage = 0.0, next = 0.0;
        for (int t = length_of(i) - 1; t >= 0; t--) {
            const int at = i * c.tokens + t;
            const double score = t + 1 == length_of(i) ? c.scores[i] : 0.0;
            const double reward = score - coef * (c.logp[at] - c.reference[at]);
            advantage = reward + c.gamma * next - c.values[at] + c.gamma * c.lambda * advantage;
            out[at] = advantage + c.values[at];
            next = c.values[at];
        }
    }
}

Test(ppo_rollout, the_coefficient_that_follows_weighs_the_rewards)
{
    double want[MAX] = {0};
    read_first_case();
    set_case();
    mock_value(x.plugin, x.values, "kl_target")->f = 1e-3;
    mock_value(x.plugin, x.values, "kl_horizon")->i = 4;
    open_subject();
    for (int k = 0; k < 4; k++) {
        memset(seen.got, 0, sizeof seen.got);
        step();
        returns_with(figure_of("objective/kl_coef"), want);
        expect_input("returns", want, 3e-6);
        if (k == 0)
            expect_input("returns", c.returns, 3e-6);
    }
    cr_expect(fabs(figure_of("objective/kl_coef") - c.kl_coef) > 0.1 * c.kl_coef);
    x.plugin->destroy(x.self);
}

/* A stop within the generation leaves the coefficient alone, however often it comes. */
Test(ppo_rollout, a_stopped_rollout_leaves_the_coefficient)
{
    read_first_case();
    set_case();
    mock_value(x.plugin, x.values, "kl_target")->f = 1e-3;
    mock_value(x.plugin, x.values, "kl_horizon")->i = 8;
    open_subject();
    step();
    step();
    seen.stops = 1;
    for (int k = 0; k < 3; k++) {
        step();
        cr_expect_eq(seen.learnt[0], 0);
    }
    seen.stops = 0;
    step();
    const double sign = c.mean_kl > 1e-3 ? 1.0 : -1.0;
    cr_expect_float_eq(figure_of("objective/kl_coef"),
                       c.kl_coef * (1.0 + sign * 0.2 * c.rows / 8.0), 1e-12);
    x.plugin->destroy(x.self);
}

/* A rollout keeps the epochs and minibatches with which it was made. */
Test(ppo_rollout, a_run_that_resumes_with_fewer_epochs_makes_its_next_rollout)
{
    read_first_case();
    set_case();
    mock_value(x.plugin, x.values, "epochs")->i = 4;
    mock_value(x.plugin, x.values, "minibatches")->i = 2;
    open_subject();
    for (int k = 0; k < 5; k++)
        step();
    cr_expect_eq(seen.n_rollouts, 1);
    x.plugin->destroy(x.self);
    mock_value(x.plugin, x.values, "epochs")->i = 2;
    mock_value(x.plugin, x.values, "minibatches")->i = 1;
    open_subject();
    for (int k = 5; k < 8; k++)
        step();
    cr_expect_eq(seen.n_rollouts, 1);
    for (int k = 0; k < 3; k++) {
        step();
        cr_expect_eq(seen.n_rollouts, k < 2 ? 2 : 3);
        for (int32_t i = 0; i < c.rows; i++) /* no minibatches: all are learnt in each step */
            cr_expect_eq(seen.learnt[i], length_of(i), "completion %d", i);
    }
    x.plugin->destroy(x.self);
}

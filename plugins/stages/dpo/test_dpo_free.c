/* dpo without a reference model: cpo, simpo and orpo against TRL, and reference_free. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "lathe/stage.h"
#include "mock_graph.h"
#include "mock_plugin.h"

static lathe_val policy_value, targets;
static int reference_asked;

static lathe_status logprobs(void *ctx, int32_t model, lathe_val *out)
{
    (void)ctx;
    reference_asked += model != LATHE_MODEL_POLICY;
    *out = policy_value;
    return LATHE_OK;
}

static lathe_status target_mask(void *ctx, lathe_val *out)
{
    (void)ctx;
    *out = targets;
    return LATHE_OK;
}

/* One case of golden/data/dpo_free.txt, whose numbers are TRL's (tests/golden). Rows come in pairs:
 * chosen, rejected. */
typedef struct test_case {
    char type[32];
    double beta, smoothing, gamma, alpha;
    int pairs, tokens, reference_free;
    double is_target[64], policy[64], grad[64], loss, metrics[9], mask[32];
} test_case;

static void *instance(const lathe_plugin *plugin, const test_case *c)
{
    lathe_value values[MOCK_MAX_FIELDS];
    void *self = NULL;
    mock_defaults(plugin, values);
    mock_value(plugin, values, "beta")->f = c->beta;
    mock_value(plugin, values, "label_smoothing")->f = c->smoothing;
    mock_value(plugin, values, "loss_type")->s = c->type;
    if (strcmp(c->type, "simpo") == 0)
        mock_value(plugin, values, "simpo_gamma")->f = c->gamma;
    if (strcmp(c->type, "cpo") == 0)
        mock_value(plugin, values, "cpo_alpha")->f = c->alpha;
    if (c->reference_free)
        mock_value(plugin, values, "reference_free")->i = 1;
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK, "%s",
                 mock_host_error());
    return self;
}

static lathe_stage_loss build(const lathe_plugin *plugin, void *self, lathe_graph *g,
                              const test_case *c)
{
    const lathe_stage_v1 *stage = plugin->table;
    const lathe_desc desc = lathe_desc_1d(LATHE_F32, 2 * c->pairs * c->tokens);
    policy_value = mock_input(g, "policy", desc, c->policy);
    targets = mock_input(g, "targets", desc, c->is_target);
    reference_asked = 0;
    const lathe_stage_build b = {
        .size = sizeof b,
        .n_rows = 2 * c->pairs,
        .row_tokens = c->tokens,
        .api = mock_api(),
        .graph = g,
        .logprobs = logprobs,
        .target_mask = target_mask,
        .record_mask = mock_input(g, "record_mask", lathe_desc_1d(LATHE_F32, c->pairs), c->mask)};
    lathe_stage_loss loss = {.size = sizeof loss};
    cr_assert_eq(stage->loss(self, &b, &loss), LATHE_OK, "%s", mock_error(g));
    mock_eval(g);
    /* asking for the reference model would load a second copy of the weights */
    cr_expect_eq(reference_asked, 0, "%s asks for the reference", c->type);
    cr_expect_eq(stage->needs_of(self), 0);
    return loss;
}

static void read_line(FILE *file, const char *name, double *out, int n)
{
    char word[32];
    cr_assert_eq(fscanf(file, "%31s", word), 1);
    cr_assert_str_eq(word, name);
    for (int i = 0; i < n; i++)
        cr_assert_eq(fscanf(file, "%lf", &out[i]), 1);
}

/* The six that all losses have; then nll_loss of cpo and orpo, and two of orpo alone. */
static int n_metrics(const test_case *c)
{
    return strcmp(c->type, "orpo") == 0 ? 9 : strcmp(c->type, "cpo") == 0 ? 7 : 6;
}

static void read_case(FILE *file, test_case *c)
{
    memset(c, 0, sizeof *c);
    cr_assert_eq(fscanf(file, "%31s %lf %lf %lf %lf %d %d", c->type, &c->beta, &c->smoothing,
                        &c->gamma, &c->alpha, &c->pairs, &c->tokens),
                 7);
    const int n = 2 * c->pairs * c->tokens;
    cr_assert(n <= 64);
    read_line(file, "targets", c->is_target, n);
    read_line(file, "policy", c->policy, n);
    read_line(file, "loss", &c->loss, 1);
    read_line(file, "grad", c->grad, n);
    read_line(file, "metrics", c->metrics, n_metrics(c));
    for (int i = 0; i < c->pairs; i++)
        c->mask[i] = 1.0;
}

/* Both sides compute in double (test_dpo.c has the tolerances). */
static void check_case(const lathe_plugin *plugin, const test_case *c)
{
    static const char *const names[9] = {
        "rewards/chosen",     "rewards/rejected", "rewards/margins",
        "rewards/accuracies", "logps/chosen",     "logps/rejected",
        "nll_loss",           "log_odds_chosen",  "log_odds_ratio"};
    void *self = instance(plugin, c);
    lathe_graph *g = mock_create(LATHE_F32);
    const lathe_stage_loss loss = build(plugin, self, g, c);
    cr_expect_float_eq(mock_data(g, loss.sum)[0], c->loss, 1e-12 * fmax(1.0, fabs(c->loss)), "%s",
                       c->type);
    for (int i = 0; i < 2 * c->pairs * c->tokens; i++)
        if (c->is_target[i] != 0.0)
            cr_expect_float_eq(mock_gradient(g, loss.sum, policy_value, i, 1e-4), c->grad[i],
                               1e-7 * fmax(1.0, fabs(c->grad[i])), "%s %d", c->type, i);
    cr_assert_eq(loss.n_metrics, n_metrics(c));
    for (int i = 0; i < loss.n_metrics; i++) {
        cr_expect_str_eq(loss.metrics[i].name, names[i]);
        cr_expect_float_eq(mock_data(g, loss.metrics[i].sum)[0], c->metrics[i], 1e-12, "%s %s",
                           c->type, names[i]);
    }
    mock_destroy(g);
    plugin->destroy(self);
}

Test(dpo_free, cpo_simpo_and_orpo_agree_with_trl)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/dpo_free.txt", "r");
    static test_case c;
    char word[32];
    int cases = 0;
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "#%*[^\n]"), 0);
    for (; fscanf(file, "%31s", word) == 1; cases++) {
        cr_assert_str_eq(word, "case");
        read_case(file, &c);
        check_case(plugin, &c);
    }
    cr_expect_eq(cases, 7);
    (void)fclose(file);
}

/* The last batch of an epoch is filled with padding pairs, here the middle one of three. */
Test(dpo_free, a_padding_pair_adds_nothing_to_any_loss_or_metric)
{
    static const char *const types[] = {"cpo", "simpo", "orpo"};
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        static test_case two, three;
        const double padded[6] = {-1.0, 0.0, -2.5, -1.5, 0.0, -2.0};
        two = (test_case){.beta = 0.5,
                          .gamma = 0.5,
                          .alpha = 1.0,
                          .pairs = 2,
                          .tokens = 1,
                          .is_target = {1, 1, 1, 1},
                          .policy = {-1.0, -2.5, -1.5, -2.0},
                          .mask = {1, 1}};
        three = two;
        (void)snprintf(two.type, sizeof two.type, "%s", types[i]);
        (void)snprintf(three.type, sizeof three.type, "%s", types[i]);
        three.pairs = 3;
        for (int k = 0; k < 6; k++) {
            three.policy[k] = padded[k];
            three.is_target[k] = padded[k] != 0.0;
            three.mask[k / 2] = k / 2 != 1;
        }
        void *self = instance(plugin, &two);
        lathe_graph *g = mock_create(LATHE_F32), *h = mock_create(LATHE_F32);
        const lathe_stage_loss got = build(plugin, self, g, &three);
        const double loss = mock_data(g, got.sum)[0];
        const lathe_stage_loss want = build(plugin, self, h, &two);
        cr_expect_float_eq(loss, mock_data(h, want.sum)[0], 1e-12, "%s", types[i]);
        for (int m = 0; m < got.n_metrics; m++)
            cr_expect_float_eq(mock_data(g, got.metrics[m].sum)[0],
                               mock_data(h, want.metrics[m].sum)[0], 1e-12, "%s %s", types[i],
                               got.metrics[m].name);
        mock_destroy(g);
        mock_destroy(h);
        plugin->destroy(self);
    }
}

/* log(p / (1 - p)) is infinite at p = 1, and in f32 already at 1 - 2^-25. */
Test(dpo_free, log_odds_of_a_certain_completion_are_finite_in_f32)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    static test_case c = {.type = "orpo",
                          .beta = 0.5,
                          .pairs = 2,
                          .tokens = 1,
                          .is_target = {1, 1, 1, 1},
                          .policy = {0.0, -1e-9, -80.0, -1e-4},
                          .mask = {1, 1}};
    void *self = instance(plugin, &c);
    lathe_graph *g = mock_create(LATHE_F32);
    mock_round(g, 1);
    const lathe_stage_loss loss = build(plugin, self, g, &c);
    cr_expect(isfinite(mock_data(g, loss.sum)[0]));
    /* log odds of 1 - 1e-6, twice, less those of exp(-80) and of exp(-1e-4) */
    const double top = log(exp(-1e-6) / -expm1(-1e-6));
    cr_expect_float_eq(mock_data(g, loss.metrics[7].sum)[0],
                       2 * top + 80.0 - log(exp(-1e-4) / -expm1(-1e-4)), 1e-4);
    mock_destroy(g);
    plugin->destroy(self);
}

Test(dpo_free, reference_free_is_the_loss_of_a_reference_of_zeros)
{
    static const char *const types[] = {"sigmoid", "robust",       "hinge",
                                        "ipo",     "sigmoid_norm", "discopop"};
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        static test_case c;
        c = (test_case){.beta = 0.5,
                        .pairs = 1,
                        .tokens = 2,
                        .reference_free = 1,
                        .is_target = {1, 1, 1, 1},
                        .policy = {-1.0, -2.5, -1.5, -3.0},
                        .mask = {1}};
        (void)snprintf(c.type, sizeof c.type, "%s", types[i]);
        c.gamma = 0.5;
        c.alpha = 1.0;
        void *self = instance(plugin, &c);
        lathe_graph *g = mock_create(LATHE_F32);
        const lathe_stage_loss loss = build(plugin, self, g, &c);
        cr_expect_float_eq(mock_data(g, loss.metrics[0].sum)[0], 0.5 * -3.5, 1e-12, "%s", types[i]);
        cr_expect_float_eq(mock_data(g, loss.metrics[2].sum)[0], 0.5, 1e-12, "%s", types[i]);
        if (strcmp(types[i], "sigmoid") == 0)
            cr_expect_float_eq(mock_data(g, loss.sum)[0], log1p(exp(-0.5)), 1e-12);
        mock_destroy(g);
        plugin->destroy(self);
    }
}

static void refused(const char *type, const char *key, double f, int64_t i, const char *message)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    lathe_value values[MOCK_MAX_FIELDS];
    void *self = NULL;
    mock_defaults(plugin, values);
    mock_value(plugin, values, "loss_type")->s = type;
    mock_value(plugin, values, key)->f = f;
    mock_value(plugin, values, key)->i = i;
    mock_value(plugin, values, key)->is_explicit = 1;
    cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG);
    cr_expect_str_eq(mock_host_error(), message);
}

Test(dpo_free, settings_of_other_losses_are_refused)
{
    refused("orpo", "reference_free", 0.0, 1,
            "reference_free has no effect on loss_type \"orpo\", which never reads a reference "
            "model; leave it out");
    refused("apo_zero", "reference_free", 0.0, 1,
            "loss_type \"apo_zero\" compares each completion with the reference model, so "
            "reference_free is not possible; use sigmoid, or another loss of the difference");
    refused("sigmoid", "simpo_gamma", 1.0, 0,
            "simpo_gamma has no meaning for loss_type \"sigmoid\"; leave it out");
    refused("orpo", "cpo_alpha", 1.0, 0,
            "cpo_alpha has no meaning for loss_type \"orpo\"; leave it out");
    refused("orpo", "label_smoothing", 0.1, 0,
            "label_smoothing = 0.1 has no meaning for loss_type \"orpo\"; leave it out, or use "
            "sigmoid, robust, exo_pair, cpo or simpo");
}

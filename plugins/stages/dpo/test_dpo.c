/* dpo: losses, gradients and metrics against TRL; hand-worked pair; hinge's corner; refusals. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "lathe/stage.h"
#include "mock_graph.h"
#include "mock_plugin.h"

static lathe_val given[2], targets;
static int asked[2];

static lathe_status logprobs(void *ctx, int32_t model, lathe_val *out)
{
    (void)ctx;
    asked[model]++;
    *out = given[model];
    return LATHE_OK;
}

static lathe_status target_mask(void *ctx, lathe_val *out)
{
    (void)ctx;
    *out = targets;
    return LATHE_OK;
}

static void *instance(const lathe_plugin *plugin, const char *type, double beta, double smoothing)
{
    lathe_value values[MOCK_MAX_FIELDS];
    mock_defaults(plugin, values);
    mock_value(plugin, values, "beta")->f = beta;
    mock_value(plugin, values, "label_smoothing")->f = smoothing;
    mock_value(plugin, values, "loss_type")->s = type;
    void *self = NULL;
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK, "%s",
                 mock_host_error());
    return self;
}

/* mask: 1 for each pair that is counted. */
static lathe_stage_loss build_masked(const lathe_plugin *plugin, void *self, lathe_graph *g,
                                     int32_t pairs, int64_t tokens, const double *policy,
                                     const double *reference, const double *mask,
                                     const double *is_target)
{
    const lathe_stage_v1 *stage = plugin->table;
    const lathe_desc desc = lathe_desc_1d(LATHE_F32, 2 * pairs * tokens);
    given[LATHE_MODEL_POLICY] = mock_input(g, "policy", desc, policy);
    given[LATHE_MODEL_REFERENCE] = mock_input(g, "reference", desc, reference);
    targets = mock_input(g, "targets", desc, is_target);
    const lathe_stage_build b = {
        .size = sizeof b,
        .n_rows = 2 * pairs,
        .row_tokens = tokens,
        .api = mock_api(),
        .graph = g,
        .logprobs = logprobs,
        .target_mask = target_mask,
        .record_mask = mock_input(g, "record_mask", lathe_desc_1d(LATHE_F32, pairs), mask)};
    lathe_stage_loss loss = {.size = sizeof loss};
    cr_assert_eq(stage->loss(self, &b, &loss), LATHE_OK, "%s", mock_error(g));
    cr_expect_eq(loss.count_unit, LATHE_COUNT_PAIRS);
    mock_eval(g);
    return loss;
}

static lathe_stage_loss build(const lathe_plugin *plugin, void *self, lathe_graph *g, int32_t pairs,
                              int64_t tokens, const double *policy, const double *reference)
{
    double ones[64];
    cr_assert_leq(2 * pairs * tokens, 64);
    for (int32_t i = 0; i < 64; i++)
        ones[i] = 1.0;
    return build_masked(plugin, self, g, pairs, tokens, policy, reference, ones, ones);
}

/* Three pairs of one token, the second of them padding, give the sums of the other two. */
Test(dpo, a_padding_pair_adds_nothing_to_any_loss_or_metric)
{
    static const char *const types[] = {"sigmoid",   "robust",   "hinge",       "nca_pair",
                                        "ipo",       "bco_pair", "apo_zero",    "apo_down",
                                        "sppo_hard", "discopop", "sigmoid_norm"};
    static const double counts[6] = {1.0, 0.0, 1.0, 1.0, 0.0, 1.0};
    static const double padded[6] = {-1.0, 0.0, -2.5, -1.5, 0.0, -2.0};
    static const double two[4] = {-1.0, -2.5, -1.5, -2.0}, mask[3] = {1.0, 0.0, 1.0};
    static const double base[6] = {-1.2, 0.0, -2.0, -1.0, 0.0, -3.0};
    static const double base_two[4] = {-1.2, -2.0, -1.0, -3.0};
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        void *self = instance(plugin, types[i], 0.5, 0.0);
        lathe_graph *g = mock_create(LATHE_F32), *h = mock_create(LATHE_F32);
        const lathe_stage_loss got =
            build_masked(plugin, self, g, 3, 1, padded, base, mask, counts);
        const lathe_stage_loss want = build(plugin, self, h, 2, 1, two, base_two);
        cr_expect_float_eq(mock_data(g, got.sum)[0], mock_data(h, want.sum)[0], 1e-12, "%s",
                           types[i]);
        for (int m = 0; m < got.n_metrics; m++)
            cr_expect_float_eq(mock_data(g, got.metrics[m].sum)[0],
                               mock_data(h, want.metrics[m].sum)[0], 1e-12, "%s %s", types[i],
                               got.metrics[m].name);
        mock_destroy(g);
        mock_destroy(h);
        plugin->destroy(self);
    }
}

static void read_line(FILE *file, const char *name, double *out, int n)
{
    char word[32];
    cr_assert_eq(fscanf(file, "%31s", word), 1);
    cr_assert_str_eq(word, name);
    for (int i = 0; i < n; i++)
        cr_assert_eq(fscanf(file, "%lf", &out[i]), 1);
}

/* Both sides compute in double; sums of at most 40 terms of size <= 3: 1e-12 leaves three digits.
 * The central difference with h = 1e-4 errs by h^2/6 * |f'''| < 1e-8. */
static void check_case(const lathe_plugin *plugin, FILE *file)
{
    static const char *const names[] = {"rewards/chosen",     "rewards/rejected", "rewards/margins",
                                        "rewards/accuracies", "logps/chosen",     "logps/rejected"};
    char type[32];
    static const double ones[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    double beta, smoothing, is_target[64], policy[64], reference[64], grad[64], want, metrics[6];
    int pairs, tokens;
    cr_assert_eq(fscanf(file, "%31s %lf %lf %d %d", type, &beta, &smoothing, &pairs, &tokens), 5);
    const int n = 2 * pairs * tokens;
    cr_assert(n <= 64);
    read_line(file, "targets", is_target, n);
    read_line(file, "policy", policy, n);
    read_line(file, "reference", reference, n);
    read_line(file, "loss", &want, 1);
    read_line(file, "grad", grad, n);
    read_line(file, "metrics", metrics, 6);
    void *self = instance(plugin, type, beta, smoothing);
    lathe_graph *g = mock_create(LATHE_F32);
    const lathe_stage_loss loss =
        build_masked(plugin, self, g, pairs, tokens, policy, reference, ones, is_target);
    cr_expect_float_eq(mock_data(g, loss.sum)[0], want, 1e-12 * fmax(1.0, fabs(want)),
                       "%s: %.17g, want %.17g", type, mock_data(g, loss.sum)[0], want);
    for (int i = 0; i < n; i++)
        if (is_target[i] != 0.0)
            cr_expect_float_eq(mock_gradient(g, loss.sum, given[0], i, 1e-4), grad[i],
                               1e-7 * fmax(1.0, fabs(grad[i])), "%s %d", type, i);
    for (int i = 0; i < n; i++)
        cr_expect_eq(mock_gradient(g, loss.sum, given[1], i, 1e-4), 0.0,
                     "the reference has a gradient");
    cr_assert_eq(loss.n_metrics, 6);
    for (int i = 0; i < 6; i++) {
        cr_expect_str_eq(loss.metrics[i].name, names[i]);
        cr_expect_float_eq(mock_data(g, loss.metrics[i].sum)[0], metrics[i], 1e-12, "%s %s", type,
                           names[i]);
    }
    mock_destroy(g);
    plugin->destroy(self);
}

Test(dpo, losses_gradients_and_metrics_agree_with_trl)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/dpo.txt", "r");
    cr_assert_not_null(file);
    char word[32];
    int cases = 0;
    cr_assert_eq(fscanf(file, "#%*[^\n]"), 0);
    for (; fscanf(file, "%31s", word) == 1; cases++) {
        cr_assert_str_eq(word, "case");
        check_case(plugin, file);
    }
    cr_expect_eq(cases, 16);
    (void)fclose(file);
}

Test(dpo, first_step_gives_log_two_and_no_pair_counts_as_right)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    void *self = instance(plugin, "sigmoid", 0.1, 0.0);
    lathe_graph *g = mock_create(LATHE_F32);
    const double logp[4] = {-1, -2, -3, -4}; /* policy = reference: every margin is exactly 0 */
    const lathe_stage_loss loss = build(plugin, self, g, 2, 1, logp, logp);
    cr_expect_float_eq(mock_data(g, loss.sum)[0], 2 * log(2.0), 1e-15);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(mock_data(g, loss.metrics[i].sum)[0], 0.0, "%s", loss.metrics[i].name);
    /* d loss / d chosen = -beta/2 */
    cr_expect_float_eq(mock_gradient(g, loss.sum, given[0], 0, 1e-4), -0.05, 1e-9);
    cr_expect_float_eq(mock_gradient(g, loss.sum, given[0], 2, 1e-4), 0.05, 1e-9);
    cr_expect_eq(asked[0], 1);
    cr_expect_eq(asked[1], 1);
    mock_destroy(g);
    plugin->destroy(self);
}

Test(dpo, accuracy_is_a_whole_number_for_small_and_large_margins_in_f32)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    void *self = instance(plugin, "sigmoid", 0.01, 0.0);
    lathe_graph *g = mock_create(LATHE_F32);
    mock_round(g, 1);
    const double reference[8] = {0};
    /* margins: 1e-9 (right), -1e-9 (wrong), 8000 (right), -8000 (wrong) before beta */
    const double policy[8] = {-1e-9, -2e-9, -1, -8001, -2e-9, -1e-9, -8001, -1};
    const lathe_stage_loss loss = build(plugin, self, g, 4, 1, policy, reference);
    cr_expect_eq(mock_data(g, loss.metrics[3].sum)[0], 2.0);
    mock_destroy(g);
    plugin->destroy(self);
}

Test(dpo, hinge_is_flat_beyond_its_corner)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    void *self = instance(plugin, "hinge", 1.0, 0.0);
    lathe_graph *g = mock_create(LATHE_F32);
    const double reference[4] = {0}, policy[4] = {-1, -1, -4, -1.5};
    const lathe_stage_loss loss = build(plugin, self, g, 2, 1, policy, reference);
    cr_expect_eq(mock_data(g, loss.sum)[0], 0.5); /* max(0, 1-3) + max(0, 1-0.5) */
    cr_expect_eq(mock_gradient(g, loss.sum, given[0], 0, 1e-4), 0.0);
    cr_expect_float_eq(mock_gradient(g, loss.sum, given[0], 1, 1e-4), -1.0, 1e-9);
    mock_destroy(g);
    plugin->destroy(self);
}

/* exp(-b d) = exp(800) is no double, but its weight in the loss is 0: -log s(-800) = 800 is left.
 */
Test(dpo, discopop_is_finite_where_the_rejected_completion_leads_far)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    void *self = instance(plugin, "discopop", 1.0, 0.0);
    lathe_graph *g = mock_create(LATHE_F32);
    const double reference[2] = {0}, policy[2] = {-801, -1};
    const lathe_stage_loss loss = build(plugin, self, g, 1, 1, policy, reference);
    cr_expect_float_eq(mock_data(g, loss.sum)[0], 800.0, 1e-9);
    cr_expect_float_eq(mock_gradient(g, loss.sum, given[0], 0, 1e-4), -1.0, 1e-7);
    mock_destroy(g);
    plugin->destroy(self);
}

Test(dpo, refuses_smoothing_where_it_means_nothing_and_odd_rows)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_stage_v1 *stage = plugin->table;
    lathe_value values[MOCK_MAX_FIELDS];
    mock_defaults(plugin, values);
    mock_value(plugin, values, "label_smoothing")->f = 0.1;
    mock_value(plugin, values, "loss_type")->s = "hinge";
    void *self = NULL;
    cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG);
    cr_expect(strstr(mock_host_error(), "no meaning for loss_type \"hinge\"") != NULL);
    mock_value(plugin, values, "loss_type")->s = "aot";
    cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG);
    mock_value(plugin, values, "loss_type")->s = "exo_pair";
    mock_value(plugin, values, "label_smoothing")->f = 0.0;
    cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG);
    cr_expect(strstr(mock_host_error(), "needs label_smoothing above 0") != NULL);
    cr_expect_null(self);

    self = instance(plugin, "sigmoid", 0.1, 0.0);
    lathe_graph *g = mock_create(LATHE_F32);
    lathe_stage_build b = {.size = sizeof b,
                           .n_rows = 3,
                           .row_tokens = 1,
                           .api = mock_api(),
                           .graph = g,
                           .logprobs = logprobs};
    lathe_stage_loss loss = {.size = sizeof loss};
    cr_expect_eq(stage->loss(self, &b, &loss), LATHE_E_SHAPE);
    b.n_rows = 0;
    cr_expect_eq(stage->loss(self, &b, &loss), LATHE_E_SHAPE);
    mock_destroy(g);
    plugin->destroy(self);
    plugin->destroy(NULL);
}

Test(dpo, declares_pairs_and_a_reference)
{
    const lathe_stage_v1 *stage = mock_plugin_open(LATHE_TEST_PLUGIN)->table;
    cr_expect_eq(stage->rows, LATHE_ROWS_PAIRS);
    cr_expect_eq(stage->needs, LATHE_NEEDS_REFERENCE);
    cr_expect_eq(stage->n_columns, 3);
}

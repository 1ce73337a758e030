/* pretrain: the loss is minus the sum of the log-probabilities; its gradient is -1 each. The
 * objective is that of the settings, and settings of another objective are refused. */
#include <criterion/criterion.h>
#include <string.h>

#include "lathe/stage.h"
#include "mock_graph.h"
#include "mock_plugin.h"

static lathe_val given;
static lathe_status given_status;

static lathe_status logprobs(void *ctx, int32_t model, lathe_val *out)
{
    (void)ctx;
    cr_expect_eq(model, LATHE_MODEL_POLICY);
    *out = given;
    return given_status;
}

Test(pretrain, loss_is_minus_the_sum_and_counts_tokens)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_stage_v1 *stage = plugin->table;
    lathe_graph *g = mock_create(LATHE_F32);
    const double logp[6] = {-1.5, -0.25, 0, -2, -0.5, -3}; /* the third has no target */
    given = mock_input(g, "logp", lathe_desc_1d(LATHE_F32, 6), logp);
    const lathe_stage_build build = {.size = sizeof build,
                                     .n_rows = 2,
                                     .row_tokens = 3,
                                     .api = mock_api(),
                                     .graph = g,
                                     .logprobs = logprobs,
                                     .record_mask = LATHE_NONE};
    lathe_stage_loss loss = {.size = sizeof loss};
    cr_assert_eq(stage->loss(NULL, &build, &loss), LATHE_OK);
    mock_eval(g);
    cr_expect_eq(mock_data(g, loss.sum)[0], 7.25);
    cr_expect_eq(mock_desc(g, loss.sum).rank, 0);
    cr_expect_eq(loss.count_unit, LATHE_COUNT_TOKENS);
    cr_expect_eq(loss.n_metrics, 0);
    for (int i = 0; i < 6; i++)
        cr_expect_float_eq(mock_gradient(g, loss.sum, given, i, 1e-3), -1.0, 1e-9);
    mock_destroy(g);
}

Test(pretrain, passes_on_what_the_core_reports)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_stage_v1 *stage = plugin->table;
    lathe_graph *g = mock_create(LATHE_F32);
    given_status = LATHE_E_NOMEM;
    const lathe_stage_build build = {.size = sizeof build,
                                     .n_rows = 1,
                                     .row_tokens = 1,
                                     .api = mock_api(),
                                     .graph = g,
                                     .logprobs = logprobs,
                                     .record_mask = LATHE_NONE};
    lathe_stage_loss loss = {.size = sizeof loss};
    cr_expect_eq(stage->loss(NULL, &build, &loss), LATHE_E_NOMEM);
    cr_expect_eq(mock_n_nodes(g), 0);
    mock_destroy(g);
}

Test(pretrain, reads_text_and_needs_no_reference)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_stage_v1 *stage = plugin->table;
    cr_expect_eq(stage->n_columns, 1);
    cr_expect_str_eq(stage->columns[0].name, "text");
    cr_expect_eq(stage->rows, LATHE_ROWS_PACKED);
    cr_expect_eq(stage->needs, 0);
}

/* Creates an instance with `key` = text or number; key NULL: only the objective. */
static lathe_status create(const char *objective, const char *key, const char *text, double number,
                           void **out)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    static lathe_value values[MOCK_MAX_FIELDS];
    mock_defaults(plugin, values);
    mock_value(plugin, values, "objective")->s = objective;
    lathe_value *value = key ? mock_value(plugin, values, key) : NULL;
    if (value) {
        value->s = text;
        value->f = number;
        value->is_set = value->is_explicit = 1;
    }
    *out = NULL;
    return plugin->create(mock_host(), values, plugin->n_fields, out);
}

static lathe_objective objective_of(void *self)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    lathe_objective out = {.size = sizeof out};
    ((const lathe_stage_v1 *)plugin->table)->objective(self, &out);
    plugin->destroy(self);
    return out;
}

Test(pretrain, objectives_have_their_settings)
{
    void *self;
    cr_assert_eq(create("causal", NULL, NULL, 0, &self), LATHE_OK);
    cr_expect_eq(objective_of(self).kind, LATHE_OBJECTIVE_CAUSAL);
    cr_assert_eq(create("prefix", NULL, NULL, 0, &self), LATHE_OK);
    lathe_objective o = objective_of(self);
    cr_expect(o.kind == LATHE_OBJECTIVE_PREFIX && o.prefix_fraction == 0.0);
    cr_assert_eq(create("prefix", "prefix_fraction", NULL, 0.25, &self), LATHE_OK);
    cr_expect_eq(objective_of(self).prefix_fraction, 0.25);
    cr_assert_eq(create("masked", NULL, NULL, 0, &self), LATHE_OK);
    o = objective_of(self);
    cr_expect(o.kind == LATHE_OBJECTIVE_MASKED && o.mask_probability == 0.15 &&
              o.mask_share == 0.8 && o.random_share == 0.1 && o.mask_token == NULL);
    cr_assert_eq(create("masked", "mask_token", "<mask>", 0, &self), LATHE_OK);
    cr_expect_str_eq(objective_of(self).mask_token, "<mask>");
}

Test(pretrain, settings_of_another_objective_are_refused)
{
    static const char *const keys[] = {"mask_probability", "mask_share", "random_share"};
    void *self;
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(create("prefix", keys[i], NULL, 0.1, &self), LATHE_E_CONFIG);
        cr_expect(strstr(mock_host_error(), keys[i]), "%s", mock_host_error());
        cr_assert_eq(create("masked", keys[i], NULL, 0.1, &self), LATHE_OK);
        mock_plugin_open(LATHE_TEST_PLUGIN)->destroy(self);
    }
    cr_expect_eq(create("causal", "prefix_fraction", NULL, 0.5, &self), LATHE_E_CONFIG);
    cr_expect_eq(create("masked", "prefix_fraction", NULL, 0.5, &self), LATHE_E_CONFIG);
    cr_expect_eq(create("causal", "mask_token", "x", 0, &self), LATHE_E_CONFIG);
    cr_expect_eq(create("masked", "mask_token", "", 0, &self), LATHE_E_CONFIG);
    cr_expect_eq(create("masked", "random_share", NULL, 0.21, &self), LATHE_E_CONFIG);
    cr_expect_eq(create("suffix", NULL, NULL, 0, &self), LATHE_E_CONFIG);
}

/* pretrain: the loss is minus the sum of the log-probabilities; its gradient is -1 each. */
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
                                     .pair_mask = LATHE_NONE};
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
                                     .pair_mask = LATHE_NONE};
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

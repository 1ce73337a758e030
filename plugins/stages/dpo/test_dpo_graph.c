/* dpo on the core's graph: every loss builds and has a derivative, and only the policy gets
 * gradients. */
#include <criterion/criterion.h>

#include "graph/ir/ir_graph.h"
#include "graph/passes/passes.h"
#include "lathe/stage.h"
#include "mock_graph.h"
#include "mock_plugin.h"

static lathe_val logps[2], target_value;

static lathe_status logprobs(void *ctx, int32_t model, lathe_val *out)
{
    (void)ctx;
    *out = logps[model];
    return LATHE_OK;
}

static lathe_status target_mask(void *ctx, lathe_val *out)
{
    if (target_value == LATHE_NONE)
        cr_assert_eq(
            lathe_graph_input(ctx, "target_mask", lathe_desc_1d(LATHE_F32, 6 * 5), &target_value),
            LATHE_OK);
    *out = target_value;
    return LATHE_OK;
}

/* A minimal model: one number per token, x W^T. */
static lathe_val model_of(lathe_graph *g, lathe_params *params, const char *name, lathe_val x,
                          int32_t trainable)
{
    const lathe_param row = {
        .name = name, .desc = lathe_desc_2d(LATHE_F32, 1, 4), .layer = -1, .trainable = trainable};
    int32_t index;
    lathe_val w, y;
    cr_assert_eq(lathe_params_add(params, &row, &index), LATHE_OK);
    cr_assert_eq(lathe_graph_param(g, index, &w), LATHE_OK);
    cr_assert_eq(lathe_graph_api_get()->linear(g, x, w, LATHE_NONE, name, &y), LATHE_OK);
    return y;
}

static int count_kind(const lathe_graph *g, int32_t kind)
{
    int n = 0;
    for (int32_t i = 0; i < g->n_values; i++)
        n += g->values[i].kind == kind;
    return n;
}

Test(dpo_graph, every_loss_has_a_derivative_that_reaches_the_policy_alone)
{
    static const char *const types[] = {"sigmoid",   "robust",   "exo_pair", "hinge",
                                        "nca_pair",  "ipo",      "bco_pair", "apo_zero",
                                        "sppo_hard", "apo_down", "discopop", "sigmoid_norm",
                                        "cpo",       "simpo",    "orpo"};
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_stage_v1 *stage = plugin->table;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        lathe_value values[MOCK_MAX_FIELDS];
        lathe_params params;
        lathe_graph *g;
        lathe_val x, seed, mask;
        void *self;
        target_value = LATHE_NONE;
        const lathe_desc scalar = {LATHE_F32, 0, {1, 1, 1, 1}};
        mock_defaults(plugin, values);
        mock_value(plugin, values, "loss_type")->s = types[i];
        mock_value(plugin, values, "label_smoothing")->f = i < 3 ? 0.1 : 0.0;
        cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK);
        lathe_params_init(&params, LATHE_F32);
        cr_assert_eq(lathe_graph_create(&params, &g), LATHE_OK);
        cr_assert_eq(lathe_graph_input(g, "x", lathe_desc_2d(LATHE_F32, 6 * 5, 4), &x), LATHE_OK);
        cr_assert_eq(lathe_graph_input(g, "seed", scalar, &seed), LATHE_OK);
        cr_assert_eq(lathe_graph_input(g, "record_mask", lathe_desc_1d(LATHE_F32, 3), &mask),
                     LATHE_OK);
        logps[0] = model_of(g, &params, "policy", x, 1);
        /* trainable, to show that it is detached */
        logps[1] = model_of(g, &params, "reference", x, 1);
        const lathe_stage_build build = {.size = sizeof build,
                                         .n_rows = 6,
                                         .row_tokens = 5,
                                         .api = lathe_graph_api_get(),
                                         .graph = g,
                                         .logprobs = logprobs,
                                         .target_mask = target_mask,
                                         .ctx = g,
                                         .record_mask = mask};
        lathe_stage_loss loss = {.size = sizeof loss};
        cr_assert_eq(stage->loss(self, &build, &loss), LATHE_OK, "%s", types[i]);
        for (int m = 0; m < loss.n_metrics; m++)
            lathe_graph_output(g, loss.metrics[m].sum);
        cr_assert_eq(lathe_derive(g, loss.sum, seed), LATHE_OK, "%s", types[i]);
        cr_expect_eq(count_kind(g, LATHE_VALUE_GRAD), 1, "%s", types[i]);
        lathe_graph_destroy(g);
        lathe_params_fini(&params);
        plugin->destroy(self);
    }
}

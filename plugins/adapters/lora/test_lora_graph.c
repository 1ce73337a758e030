/* lora on the core's graph: over a quantized weight in bf16, only A and B get gradients. */
#include <criterion/criterion.h>
#include <string.h>

#include "graph/ir/ir_graph.h"
#include "graph/passes/passes.h"
#include "lathe/adapter.h"
#include "mock_graph.h"
#include "mock_plugin.h"
#include "plug/plugin_instance.h"

static lathe_val quantized_weight(lathe_graph *g, lathe_params *params)
{
    static const lathe_instance format;
    const lathe_param row = {.name = "layers.0.up_proj.weight",
                             .desc = lathe_desc_2d(LATHE_F32, 8, 16),
                             .format = &format,
                             .n_planes = 2,
                             .planes = {{"weight", "", lathe_desc_2d(LATHE_U8, 64, 1)},
                                        {"absmax", ".absmax", lathe_desc_1d(LATHE_F32, 2)}}};
    int32_t index;
    lathe_val w;
    cr_assert_eq(lathe_params_add(params, &row, &index), LATHE_OK);
    cr_assert_eq(lathe_graph_param(g, index, &w), LATHE_OK);
    return w;
}

static int count_op(const lathe_graph *g, int32_t op)
{
    int n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op == op;
    return n;
}

Test(lora_graph, gradients_reach_the_update_alone_over_a_quantized_weight)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_adapter_v1 *adapter = plugin->table;
    const lathe_graph_api *api = lathe_graph_api_get();
    const lathe_desc scalar = {LATHE_F32, 0, {1, 1, 1, 1}};
    const lathe_op_attrs to_f32 = {.dtype = LATHE_F32};
    lathe_value values[MOCK_MAX_FIELDS];
    lathe_params params;
    lathe_graph *g;
    lathe_val x, seed, y, frozen, loss;
    void *self;
    mock_defaults(plugin, values);
    mock_value(plugin, values, "dropout")->f = 0.1;
    mock_value(plugin, values, "alpha")->f = 32;
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK);
    lathe_params_init(&params, LATHE_BF16);
    cr_assert_eq(lathe_graph_create(&params, &g), LATHE_OK);
    cr_assert_eq(lathe_graph_input(g, "x", lathe_desc_2d(LATHE_BF16, 6, 16), &x), LATHE_OK);
    cr_assert_eq(lathe_graph_input(g, "seed", scalar, &seed), LATHE_OK);
    const lathe_site site = {.size = sizeof site,
                             .module = "layers.0.up_proj",
                             .in_features = 16,
                             .out_features = 8,
                             .weight = quantized_weight(g, &params),
                             .bias = LATHE_NONE,
                             .weight_quantized = 1};
    cr_assert_eq(adapter->wrap(self, api, g, &site, x, 1, &y), LATHE_OK);
    cr_assert_eq(adapter->wrap(self, api, g, &site, x, 0, &frozen), LATHE_OK);
    cr_expect_eq(params.n, 3);
    cr_assert_eq(api->node(g, LATHE_OP_CAST, &to_f32, &y, 1, &y, 1, -1, ""), LATHE_OK);
    cr_assert_eq(api->node(g, LATHE_OP_SUM, NULL, &y, 1, &loss, 1, -1, ""), LATHE_OK);
    cr_assert_eq(lathe_derive(g, loss, seed), LATHE_OK);
    int grads = 0;
    for (int32_t i = 0; i < g->n_values; i++)
        if (g->values[i].kind == LATHE_VALUE_GRAD) {
            grads++;
            const lathe_param *p = params.rows[g->values[i].param];
            cr_expect_eq(p->role, LATHE_ROLE_ADAPTER);
            cr_expect(strstr(p->name, ".lora_") != NULL, "%s", p->name);
        }
    cr_expect_eq(grads, 2);
    cr_expect_eq(count_op(g, LATHE_OP_DROPOUT), 1);
    cr_expect_eq(count_op(g, LATHE_OP_LINEAR_DW), 2);
    lathe_graph_destroy(g);
    lathe_params_fini(&params);
    plugin->destroy(self);
}

/* lora_plus: the factors of its learning rates, and messages under its own name. */
#include <criterion/criterion.h>
#include <string.h>

#include "lathe/adapter.h"
#include "mock_graph.h"
#include "mock_plugin.h"

Test(lora_plus, b_learns_faster_than_a_by_the_ratio)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_adapter_v1 *table = plugin->table;
    static const double ratios[] = {0.0, 2.5}; /* 0: the default */
    for (int i = 0; i < 2; i++) {
        lathe_value values[MOCK_MAX_FIELDS];
        void *self = NULL;
        mock_defaults(plugin, values);
        if (ratios[i] > 0.0)
            mock_value(plugin, values, "lr_ratio")->f = ratios[i];
        cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK);
        cr_expect_eq(table->rate(self, "model.layers.0.mlp.up_proj.lora_A.weight"), 1.0);
        cr_expect_eq(table->rate(self, "model.layers.0.mlp.up_proj.lora_B.weight"),
                     ratios[i] > 0.0 ? ratios[i] : 16.0);
        plugin->destroy(self);
    }
    plugin->destroy(NULL);
}

Test(lora_plus, speaks_under_its_own_name)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    lathe_value values[MOCK_MAX_FIELDS];
    void *self = NULL;
    mock_defaults(plugin, values);
    mock_value(plugin, values, "target_modules")->n = 0;
    cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG);
    cr_expect_str_eq(mock_host_error(), "target_modules is empty: nothing would train");
    mock_defaults(plugin, values);
    mock_value(plugin, values, "rank_pattern")->s = "{\"down_proj\": 0.5}";
    mock_value(plugin, values, "rank_pattern")->is_set = 1;
    cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG);
    cr_expect(strstr(mock_host_error(), "rank_pattern of \"down_proj\" is 0.5"), "%s",
              mock_host_error());
}

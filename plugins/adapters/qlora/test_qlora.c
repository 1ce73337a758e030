/* qlora: it asks for a quantized base, and speaks under its own name. */
#include <criterion/criterion.h>
#include <string.h>

#include "lathe/adapter.h"
#include "mock_graph.h"
#include "mock_plugin.h"

Test(qlora, asks_for_a_quantized_base_and_writes_the_files_of_lora)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_adapter_v1 *table = plugin->table;
    lathe_value values[MOCK_MAX_FIELDS];
    char text[2048];
    void *self = NULL;
    mock_defaults(plugin, values);
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK);
    cr_expect_eq(table->needs_quantized_base(self), 1);
    cr_expect_eq(table->base_is_frozen(self), 1);
    cr_assert_gt(table->config_json(self, "base", text, sizeof text), 0);
    cr_expect_not_null(strstr(text, "\"peft_type\": \"LORA\""));
    plugin->destroy(self);
}

Test(qlora, speaks_under_its_own_name)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    lathe_value values[MOCK_MAX_FIELDS];
    void *self = NULL;
    mock_defaults(plugin, values);
    mock_value(plugin, values, "target_modules")->n = 0;
    cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG);
    cr_expect_str_eq(mock_host_error(), "target_modules is empty: nothing would train");
}

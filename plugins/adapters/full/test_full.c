/* full: everything trains, patterns freeze, quantized weights are refused. */
#include <criterion/criterion.h>
#include <string.h>

#include "lathe/adapter.h"
#include "mock_graph.h"
#include "mock_plugin.h"

static int32_t trains(const lathe_plugin *plugin, void *self, const char *name)
{
    const lathe_adapter_v1 *table = plugin->table;
    const lathe_param_info info = {.size = sizeof info, .name = name};
    int32_t trainable = -1, group = -1;
    cr_assert_eq(table->select(self, &info, &trainable, &group), LATHE_OK);
    cr_assert_eq(group, 0);
    return trainable;
}

static void *instance(const lathe_plugin *plugin, const char *const *patterns, int64_t n)
{
    lathe_value values[MOCK_MAX_FIELDS];
    mock_defaults(plugin, values);
    lathe_value *list = mock_value(plugin, values, "no_train");
    list->strs = patterns;
    list->n = n;
    void *self = NULL;
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK);
    return self;
}

Test(full, every_parameter_trains_by_default)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    lathe_value values[MOCK_MAX_FIELDS];
    mock_defaults(plugin, values);
    void *self = NULL;
    cr_assert_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_OK);
    cr_expect_eq(trains(plugin, self, "model.norm.weight"), 1);
    cr_expect_eq(trains(plugin, self, "lm_head.weight"), 1);
    plugin->destroy(self);
    plugin->destroy(NULL);
}

/* A pattern that matched inside of names would freeze layers 10 to 19 with layer 1. */
Test(full, patterns_cover_the_whole_name)
{
    static const char *const patterns[] = {"model.layers.1.*", "*.bias", "lm_head.weight", "a*b*c"};
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    void *self = instance(plugin, patterns, 4);
    const struct {
        const char *name;
        int32_t want;
    } cases[] = {{"model.layers.1.mlp.up_proj.weight", 0},
                 {"model.layers.10.mlp.up_proj.weight", 1},
                 {"x.bias", 0},
                 {"x.bias.y", 1},
                 {"lm_head.weight", 0},
                 {"lm_head.weights", 1},
                 {"axxbyybzc", 0},
                 {"axxbyybz", 1},
                 {"abc", 0},
                 {"", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(trains(plugin, self, cases[i].name), cases[i].want, "%s", cases[i].name);
    plugin->destroy(self);
}

Test(full, refuses_a_quantized_weight_unless_frozen)
{
    static const char *const patterns[] = {"frozen*"};
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    const lathe_adapter_v1 *adapter = plugin->table;
    void *self = instance(plugin, patterns, 1);
    lathe_param_info info = {.size = sizeof info, .name = "w", .quantized = 1};
    int32_t trainable, group;
    cr_expect_eq(adapter->select(self, &info, &trainable, &group), LATHE_E_CONFIG);
    cr_expect(strstr(mock_host_error(), "w is quantized") != NULL, "%s", mock_host_error());
    info.name = "frozen.w";
    cr_expect_eq(adapter->select(self, &info, &trainable, &group), LATHE_OK);
    cr_expect_eq(trainable, 0);
    plugin->destroy(self);
}

Test(full, refuses_an_empty_pattern)
{
    static const char *const patterns[] = {"a", ""};
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    lathe_value values[MOCK_MAX_FIELDS];
    mock_defaults(plugin, values);
    lathe_value *list = mock_value(plugin, values, "no_train");
    list->strs = patterns;
    list->n = 2;
    void *self = NULL;
    cr_expect_eq(plugin->create(mock_host(), values, plugin->n_fields, &self), LATHE_E_CONFIG);
    cr_expect_str_eq(mock_host_error(), "no_train[1] is empty");
}

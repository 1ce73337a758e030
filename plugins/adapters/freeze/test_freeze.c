/* freeze: which parameters of which layers train, and settings that cannot be meant. */
#include <criterion/criterion.h>
#include <string.h>

#include "lathe/adapter.h"
#include "mock_graph.h"
#include "mock_plugin.h"

enum { LAYERS = 4 };

typedef struct list {
    const char *const *patterns;
    int64_t n;
} list;

static lathe_status create(int64_t layers, list modules, list extra, void **out)
{
    const lathe_plugin *plugin = mock_plugin_open(LATHE_TEST_PLUGIN);
    lathe_value values[MOCK_MAX_FIELDS];
    mock_defaults(plugin, values);
    mock_value(plugin, values, "layers")->i = layers;
    mock_value(plugin, values, "modules")->strs = modules.patterns;
    mock_value(plugin, values, "modules")->n = modules.n;
    mock_value(plugin, values, "extra")->strs = extra.patterns;
    mock_value(plugin, values, "extra")->n = extra.n;
    return plugin->create(mock_host(), values, plugin->n_fields, out);
}

static lathe_status ask(void *self, const char *name, int32_t layer, int32_t quantized,
                        int32_t *out_trains)
{
    const lathe_adapter_v1 *table = mock_plugin_open(LATHE_TEST_PLUGIN)->table;
    const lathe_param_info info = {.size = sizeof info,
                                   .name = name,
                                   .layer = layer,
                                   .quantized = quantized,
                                   .n_layers = LAYERS};
    int32_t group = -1;
    const lathe_status status = table->select(self, &info, out_trains, &group);
    cr_assert(status != LATHE_OK || group == 0);
    return status;
}

/* "0110": which layers train, and after a space the embedding, "1" or "0". */
static const char *trained(void *self)
{
    static char text[LAYERS + 3];
    int32_t trains = -1;
    memset(text, 0, sizeof text);
    for (int32_t i = 0; i < LAYERS; i++) {
        cr_assert_eq(ask(self, "model.layers.1.mlp.up_proj.weight", i, 0, &trains), LATHE_OK);
        text[i] = (char)('0' + trains);
    }
    cr_assert_eq(ask(self, "model.embed_tokens.weight", -1, 0, &trains), LATHE_OK);
    text[LAYERS] = ' ';
    text[LAYERS + 1] = (char)('0' + trains);
    return text;
}

static void destroy(void *self)
{
    mock_plugin_open(LATHE_TEST_PLUGIN)->destroy(self);
}

Test(freeze, trains_the_last_or_the_first_layers)
{
    static const struct {
        int64_t layers;
        const char *want;
    } cases[] = {{1, "0001 0"}, {2, "0011 0"}, {4, "1111 0"}, {-1, "1000 0"}, {-3, "1110 0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *self = NULL;
        cr_assert_eq(create(cases[i].layers, (list){0}, (list){0}, &self), LATHE_OK);
        cr_expect_str_eq(trained(self), cases[i].want, "layers = %d: %s", (int)cases[i].layers,
                         trained(self));
        destroy(self);
    }
    destroy(NULL);
}

Test(freeze, modules_choose_within_the_layers_and_extra_anywhere)
{
    static const char *const attention[] = {"*.self_attn.*"}, *const mlp[] = {"*.mlp.*"};
    static const char *const embedding[] = {"model.embed_*"};
    void *self = NULL;
    cr_assert_eq(create(2, (list){attention, 1}, (list){0}, &self), LATHE_OK);
    cr_expect_str_eq(trained(self), "0000 0");
    destroy(self);
    cr_assert_eq(create(2, (list){mlp, 1}, (list){embedding, 1}, &self), LATHE_OK);
    cr_expect_str_eq(trained(self), "0011 1");
    destroy(self);
    cr_assert_eq(create(0, (list){0}, (list){embedding, 1}, &self), LATHE_OK);
    cr_expect_str_eq(trained(self), "0000 1");
    destroy(self);
}

Test(freeze, refuses_what_cannot_be_meant)
{
    static const char *const empty[] = {"*.mlp.*", ""}, *const mlp[] = {"*.mlp.*"};
    void *self = NULL;
    int32_t trains;
    cr_expect_eq(create(2, (list){empty, 2}, (list){0}, &self), LATHE_E_CONFIG);
    cr_expect_str_eq(mock_host_error(), "modules[1] is empty");
    cr_expect_eq(create(2, (list){0}, (list){empty, 2}, &self), LATHE_E_CONFIG);
    cr_expect_str_eq(mock_host_error(), "extra[1] is empty");
    cr_expect_eq(create(0, (list){0}, (list){0}, &self), LATHE_E_CONFIG);
    cr_expect(strstr(mock_host_error(), "leaves nothing to train"), "%s", mock_host_error());
    cr_expect_eq(create(0, (list){mlp, 1}, (list){0}, &self), LATHE_E_CONFIG);
    cr_expect(strstr(mock_host_error(), "layers = 0 trains none"), "%s", mock_host_error());
    for (int sign = -1; sign < 2; sign += 2) {
        cr_assert_eq(create(sign * (LAYERS + 1), (list){0}, (list){0}, &self), LATHE_OK);
        cr_expect_eq(ask(self, "w", 0, 0, &trains), LATHE_E_CONFIG);
        cr_expect(strstr(mock_host_error(), "the model has 4 layers"), "%s", mock_host_error());
        destroy(self);
    }
}

Test(freeze, refuses_a_quantized_weight_that_would_train)
{
    void *self = NULL;
    int32_t trains = -1;
    cr_assert_eq(create(1, (list){0}, (list){0}, &self), LATHE_OK);
    cr_expect_eq(ask(self, "w", LAYERS - 1, 1, &trains), LATHE_E_CONFIG);
    cr_expect(strstr(mock_host_error(), "w is quantized"), "%s", mock_host_error());
    cr_expect_eq(ask(self, "w", 0, 1, &trains), LATHE_OK);
    cr_expect_eq(trains, 0);
    destroy(self);
}

Test(freeze, a_pattern_that_matches_nothing_is_named)
{
    static const char *const patterns[] = {"*.mlp.*", "*.mpl.*"};
    static const char *const params[] = {"model.layers.0.mlp.up_proj.weight"};
    const lathe_adapter_v1 *table = mock_plugin_open(LATHE_TEST_PLUGIN)->table;
    void *self = NULL;
    cr_assert_eq(create(1, (list){patterns, 2}, (list){0}, &self), LATHE_OK);
    cr_expect_eq(table->check(self, NULL, 0, params, 1), LATHE_E_NOT_FOUND);
    cr_expect(strstr(mock_host_error(), "modules[1] = \"*.mpl.*\" matches no parameter"), "%s",
              mock_host_error());
    destroy(self);
    cr_assert_eq(create(1, (list){patterns, 1}, (list){patterns, 2}, &self), LATHE_OK);
    cr_expect_eq(table->check(self, NULL, 0, params, 1), LATHE_E_NOT_FOUND);
    cr_expect(strstr(mock_host_error(), "extra[1]"), "%s", mock_host_error());
    destroy(self);
}

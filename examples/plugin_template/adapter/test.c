/* @NAME@: checks the nodes that it builds, with a graph that only records calls. Run it with the
 * path of the .so. Values: 1 x, 2 weight, 3 bias of the site; new values count from 10. */
#include <lathe/adapter.h>
#include <lathe/kit/testing.h>

static lathe_val next, linear_bias;
static int n_adds, n_params;
static char param_name[256];

static lathe_status note_node(lathe_graph *g, int32_t op, const lathe_op_attrs *attrs,
                              const lathe_val *in, int32_t n_in, lathe_val *out, int32_t n_out,
                              int32_t inplace_in, const char *label)
{
    (void)g, (void)attrs, (void)inplace_in, (void)label;
    LATHE_CHECK(op == LATHE_OP_ADD && n_in == 2 && n_out == 1 && in[0] == 3 && in[1] == 10);
    n_adds++;
    *out = next++;
    return LATHE_OK;
}

static lathe_status note_param(lathe_graph *g, const lathe_param_decl *decl, lathe_val *out)
{
    (void)g;
    LATHE_CHECK(decl->trainable && decl->init == LATHE_INIT_ZERO);
    LATHE_CHECK(decl->desc.rank == 1 && decl->desc.dims[0] == 7);
    snprintf(param_name, sizeof param_name, "%s", decl->name);
    n_params++;
    *out = next++;
    return LATHE_OK;
}

static lathe_status note_linear(lathe_graph *g, lathe_val x, lathe_val w, lathe_val bias,
                                const char *label, lathe_val *out)
{
    (void)g, (void)label;
    LATHE_CHECK(x == 1 && w == 2);
    linear_bias = bias;
    *out = next++;
    return LATHE_OK;
}

int main(int argc, char **argv)
{
    const lathe_plugin *const plugin = lathe_test_open(argc > 1 ? argv[1] : NULL);
    const lathe_adapter_v1 *const table = plugin->table;
    void *self;
    LATHE_CHECK(lathe_test_create(plugin, "", &self) == LATHE_OK);
    const lathe_graph_api api = {.size = (uint32_t)sizeof api,
                                 .node = note_node,
                                 .param = note_param,
                                 .linear = note_linear};
    lathe_site site = {.size = (uint32_t)sizeof site,
                       .module = "model.layers.0.mlp.up_proj",
                       .in_features = 5,
                       .out_features = 7,
                       .weight = 2,
                       .bias = LATHE_NONE};
    lathe_val y;
    int32_t trains = 1, group = 1;
    LATHE_CHECK(table->select(self, NULL, &trains, &group) == LATHE_OK && !trains && !group);

    next = 10; /* without a bias: the offset takes its place */
    LATHE_CHECK(table->wrap(self, &api, NULL, &site, 1, 1, &y) == LATHE_OK);
    LATHE_CHECK(n_params == 1 && n_adds == 0 && linear_bias == 10 && y == 11);
    LATHE_CHECK(strcmp(param_name, "model.layers.0.mlp.up_proj.@NAME@_offset") == 0);

    next = 10; /* with one: their sum */
    site.bias = 3;
    LATHE_CHECK(table->wrap(self, &api, NULL, &site, 1, 1, &y) == LATHE_OK);
    LATHE_CHECK(n_params == 2 && n_adds == 1 && linear_bias == 11 && y == 12);

    next = 10; /* switched off: the plain layer */
    LATHE_CHECK(table->wrap(self, &api, NULL, &site, 1, 0, &y) == LATHE_OK);
    LATHE_CHECK(n_params == 2 && n_adds == 1 && linear_bias == 3);

    site.layer = -1;
    LATHE_CHECK(!table->targets(self, &site));
    plugin->destroy(self);
    return lathe_test_failures != 0;
}

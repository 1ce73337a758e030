/* An adapter that trains the model's norms, and adds a trained bias to every linear layer without a
 * bias. */
#include <stdio.h>

#include "lathe/adapter.h"
#include "lathe/plugin.h"

static int self; /* it has no state, but the core requires an instance that is not NULL */

static lathe_status fixture_create(const lathe_host *host, const lathe_value *values,
                                   int32_t n_values, void **out_self)
{
    (void)host, (void)values, (void)n_values;
    *out_self = &self;
    return LATHE_OK;
}

static void fixture_destroy(void *instance)
{
    (void)instance;
}

static lathe_status fixture_select(void *instance, const lathe_param_info *param,
                                   int32_t *out_trainable, int32_t *out_group)
{
    (void)instance;
    *out_trainable = param->role == LATHE_ROLE_NORM;
    *out_group = 0;
    return LATHE_OK;
}

static int32_t fixture_targets(void *instance, const lathe_site *site)
{
    (void)instance;
    return site->layer >= 0 && site->bias == LATHE_NONE;
}

static lathe_status fixture_wrap(void *instance, const lathe_graph_api *api, lathe_graph *g,
                                 const lathe_site *site, lathe_val x, int32_t enabled,
                                 lathe_val *out_y)
{
    char name[256];
    lathe_val bias = LATHE_NONE;
    (void)instance;
    (void)snprintf(name, sizeof name, "%s.added_bias", site->module);
    const lathe_param_decl decl = {.size = (uint32_t)sizeof decl,
                                   .init = LATHE_INIT_ZERO,
                                   .name = name,
                                   .desc = lathe_desc_1d(LATHE_F32, site->out_features),
                                   .trainable = 1};
    if (enabled)
        LATHE_TRY(api->param(g, &decl, &bias));
    return api->linear(g, x, site->weight, bias, site->module, out_y);
}

static const lathe_adapter_v1 table = {
    .size = sizeof table,
    .revision = LATHE_ADAPTER_REVISION,
    .select = fixture_select,
    .targets = fixture_targets,
    .wrap = fixture_wrap,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_ADAPTER,
    .revision = LATHE_ADAPTER_REVISION,
    .name = "norms_and_biases",
    .version = "1.0.0",
    .summary = "trains the norms of the model and a bias of its own at every linear layer",
    .source = "ours",
    .license = "Apache-2.0",
    .table = &table,
    .create = fixture_create,
    .destroy = fixture_destroy,
};

/* @NAME@: trains an offset on the output of each linear layer; all other parameters are frozen.
 *
 *     y = x W^T + (b + offset),   offset f32 [out], zero at the start
 *
 * This is BitFit (arXiv:2106.10199) for models with and without biases. An adapter builds graph
 * nodes, so it runs on every device and needs no derivative of its own.
 */
#include <lathe/adapter.h>
#include <lathe/plugin.h>

typedef struct instance {
    const lathe_host *host;
    int head;
} instance;

static const lathe_field fields[] = {
    {"head", LATHE_T_BOOL, 0, "false", LATHE_NO_RANGE, NULL, NULL,
     "an offset on layers outside the transformer blocks as well"},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "@NAME@ takes %d values, got %d", N_FIELDS, n_values);
    instance *const self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of @NAME@");
    *self = (instance){host, values[0].i != 0};
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((instance *)self)->host->free(self);
}

/* The model's own parameters: none of them trains. */
static lathe_status select_param(void *self, const lathe_param_info *param, int32_t *out_trainable,
                                 int32_t *out_group)
{
    (void)self, (void)param;
    *out_trainable = 0;
    *out_group = 0;
    return LATHE_OK;
}

static int32_t targets(void *self, const lathe_site *site)
{
    return site->layer >= 0 || ((const instance *)self)->head;
}

static lathe_status wrap(void *self, const lathe_graph_api *api, lathe_graph *g,
                         const lathe_site *site, lathe_val x, int32_t enabled, lathe_val *out_y)
{
    const lathe_host *const host = ((const instance *)self)->host;
    char name[256];
    lathe_val bias;
    if (!enabled) /* a reference model over the same weights */
        return api->linear(g, x, site->weight, site->bias, site->module, out_y);
    const int n = snprintf(name, sizeof name, "%s.@NAME@_offset", site->module);
    if (n < 0 || (size_t)n >= sizeof name)
        return lathe_fail(host, LATHE_E_ARG, "the name of %s is too long", site->module);
    const lathe_param_decl offset = {.size = (uint32_t)sizeof offset,
                                     .init = LATHE_INIT_ZERO,
                                     .name = name,
                                     .desc = lathe_desc_1d(LATHE_F32, site->out_features),
                                     .trainable = 1};
    LATHE_TRY(api->param(g, &offset, &bias));
    if (site->bias != LATHE_NONE) {
        const lathe_val in[2] = {site->bias, bias};
        LATHE_TRY(api->node(g, LATHE_OP_ADD, NULL, in, 2, &bias, 1, -1, name));
    }
    return api->linear(g, x, site->weight, bias, site->module, out_y);
}

static int32_t base_is_frozen(void *self)
{
    (void)self;
    return 1;
}

static const lathe_adapter_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_ADAPTER_REVISION,
    .select = select_param,
    .targets = targets,
    .wrap = wrap,
    .base_is_frozen = base_is_frozen,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_ADAPTER,
    .revision = LATHE_ADAPTER_REVISION,
    .n_fields = N_FIELDS,
    .name = "@NAME@",
    .version = "0.1.0",
    .summary = "a trainable offset on each linear layer",
    .source = "arXiv:2106.10199",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = destroy,
};

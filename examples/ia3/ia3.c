/* IA3: one trainable factor per feature of the keys, the values and the widest activation;
 * everything else is frozen.
 *
 *     k_proj, v_proj   y = (x W^T + b) * l      l f32 [out], one at the start
 *     down_proj        y = (x * l) W^T + b      l f32 [in]
 *
 * arXiv:2205.05638. Two nodes a site: BROADCAST_ROW repeats l for each token, MUL applies it. Their
 * derivatives are the core's, so the adapter runs and trains on every device.
 */
#include <string.h>

#include <lathe/adapter.h>
#include <lathe/plugin.h>

typedef struct instance {
    const lathe_host *host;
} instance;

enum { SCALES_NOTHING = 0, SCALES_OUTPUT, SCALES_INPUT };

static int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static int what(const lathe_site *site)
{
    if (ends_with(site->module, "k_proj") || ends_with(site->module, "v_proj"))
        return SCALES_OUTPUT;
    return ends_with(site->module, "down_proj") || ends_with(site->module, "mlp.c_proj")
               ? SCALES_INPUT
               : SCALES_NOTHING;
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    (void)values, (void)n_values;
    instance *const self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for an instance of ia3");
    self->host = host;
    *out_self = self;
    return LATHE_OK;
}

static void destroy(void *self)
{
    if (self != NULL)
        ((instance *)self)->host->free(self);
}

/* The model's own parameters are frozen. */
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
    (void)self;
    return what(site) != SCALES_NOTHING;
}

/* x * l, with l repeated for each row of x. */
static lathe_status scaled(const lathe_graph_api *api, lathe_graph *g, lathe_val x, lathe_val l,
                           lathe_val *out)
{
    lathe_desc d;
    LATHE_TRY(api->desc(g, x, &d));
    const lathe_op_attrs rows = {.count = d.dims[0], .dtype = d.dtype};
    lathe_val in[2] = {x, LATHE_NONE};
    LATHE_TRY(api->node(g, LATHE_OP_BROADCAST_ROW, &rows, &l, 1, &in[1], 1, -1, "ia3.factors"));
    return api->node(g, LATHE_OP_MUL, NULL, in, 2, out, 1, -1, "ia3.scaled");
}

static lathe_status wrap(void *self, const lathe_graph_api *api, lathe_graph *g,
                         const lathe_site *site, lathe_val x, int32_t enabled, lathe_val *out_y)
{
    const lathe_host *const host = ((const instance *)self)->host;
    const int scales_input = what(site) == SCALES_INPUT;
    char name[256];
    lathe_val l, y;
    if (!enabled) /* a reference model over the same weights */
        return api->linear(g, x, site->weight, site->bias, site->module, out_y);
    const int n = snprintf(name, sizeof name, "%s.ia3_l", site->module);
    if (n < 0 || (size_t)n >= sizeof name)
        return lathe_fail(host, LATHE_E_ARG, "the name of %s is too long", site->module);
    const lathe_param_decl factors = {
        .size = (uint32_t)sizeof factors,
        .init = LATHE_INIT_ONE,
        .name = name,
        .desc = lathe_desc_1d(LATHE_F32, scales_input ? site->in_features : site->out_features),
        .trainable = 1};
    LATHE_TRY(api->param(g, &factors, &l));
    if (scales_input)
        LATHE_TRY(scaled(api, g, x, l, &x));
    LATHE_TRY(api->linear(g, x, site->weight, site->bias, site->module, &y));
    *out_y = y;
    return scales_input ? LATHE_OK : scaled(api, g, y, l, out_y);
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
    .name = "ia3",
    .version = "0.1.0",
    .summary = "trainable factors on keys, values and the widest activation",
    .source = "arXiv:2205.05638",
    .license = "Apache-2.0",
    .table = &table,
    .create = create,
    .destroy = destroy,
};

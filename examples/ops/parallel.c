/* parallel: a nonlinear bottleneck beside each linear layer (arXiv:2110.04366, the parallel
 * adapter), with squared_relu as its nonlinearity.
 *
 *     y = W x + b + s B squared_relu(A x)      A [r,I] normal, B [O,r] zero at the start
 *
 * squared_relu is an op that Lathe does not have: op/squared_relu.so brings it.
 */
#include <lathe/adapter.h>
#include <lathe/kit/instance.h>

typedef struct parallel {
    const lathe_host *host;
    int64_t rank;
    double scale;
} parallel;

static const lathe_field fields[] = {
    LATHE_FIELD_INT("rank", "8", 1, 4096, "1", "width of the bottleneck"),
    LATHE_FIELD_FLOAT("scale", "1.0", 0, 1e3, "1", "factor of the bottleneck's output"),
};

static lathe_status parallel_read(const lathe_host *host, parallel *out, const lathe_value *values)
{
    (void)host;
    out->rank = values[0].i;
    out->scale = values[1].f;
    return LATHE_OK;
}

LATHE_INSTANCE(parallel, parallel_read)

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
    return site->kind == LATHE_SITE_LINEAR;
}

/* A matrix of the bottleneck: "model.layers.0.mlp.up_proj.parallel_A.weight". */
static lathe_status matrix(const parallel *p, const lathe_graph_api *api, lathe_graph *g,
                           const lathe_site *site, const char *letter, int64_t rows, int64_t cols,
                           lathe_val *out)
{
    char name[256];
    const int n = snprintf(name, sizeof name, "%s.parallel_%s.weight", site->module, letter);
    if (n < 0 || (size_t)n >= sizeof name)
        return lathe_fail(p->host, LATHE_E_ARG, "the name of %s is too long", site->module);
    const lathe_param_decl decl = {.size = (uint32_t)sizeof decl,
                                   .init = letter[0] == 'A' ? LATHE_INIT_NORMAL : LATHE_INIT_ZERO,
                                   .name = name,
                                   .desc = lathe_desc_2d(LATHE_F32, rows, cols),
                                   .init_scale = 0.02,
                                   .trainable = 1};
    return api->param(g, &decl, out);
}

static lathe_status wrap(void *self, const lathe_graph_api *api, lathe_graph *g,
                         const lathe_site *site, lathe_val x, int32_t enabled, lathe_val *out_y)
{
    const parallel *const p = self;
    const lathe_op_attr factor[] = {LATHE_ATTR_FLOAT("factor", p->scale)};
    lathe_val a, b, h, in[2];
    LATHE_TRY(api->linear(g, x, site->weight, site->bias, site->module, out_y));
    if (!enabled) /* a reference model over the same weights */
        return LATHE_OK;
    LATHE_TRY(matrix(p, api, g, site, "A", p->rank, site->in_features, &a));
    LATHE_TRY(matrix(p, api, g, site, "B", site->out_features, p->rank, &b));
    LATHE_TRY(api->linear(g, x, a, LATHE_NONE, "parallel.A", &h));
    LATHE_TRY(api->op(g, "squared_relu", factor, 1, &h, 1, &h, 1, "parallel.squared_relu"));
    in[0] = *out_y;
    LATHE_TRY(api->linear(g, h, b, LATHE_NONE, "parallel.B", &in[1]));
    return api->node(g, LATHE_OP_ADD, NULL, in, 2, out_y, 1, -1, "parallel.sum");
}

static int32_t base_is_frozen(void *self)
{
    (void)self;
    return 1;
}

static const lathe_adapter_v1 parallel_table = {
    .size = (uint32_t)sizeof parallel_table,
    .revision = LATHE_ADAPTER_REVISION,
    .select = select_param,
    .targets = targets,
    .wrap = wrap,
    .base_is_frozen = base_is_frozen,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_LIFE(parallel),
    .kind = LATHE_KIND_ADAPTER,
    .revision = LATHE_ADAPTER_REVISION,
    .version = "0.1.0",
    .summary = "a nonlinear bottleneck beside each linear layer",
    .source = "arXiv:2110.04366",
    .license = "Apache-2.0",
};

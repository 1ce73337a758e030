/* Builds a model with one linear layer (site) and an adapter around it. */
#include "harness/adapter_bench.h"

#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "harness/tiny_graph.h"

void lathe__adapter_bench_fini(lathe__adapter_bench *b)
{
    lathe_graph_destroy(b->g);
    lathe_params_fini(&b->params);
    lathe_instance_fini(&b->instance);
}

/* Adds a parameter of the model, trained or frozen as the adapter says. */
static lathe_status add_row(lathe__adapter_bench *b, int which, lathe_param row)
{
    int32_t index;
    row.name = b->names[which];
    const lathe_param_info info = {
        .size = sizeof info, .role = row.role, .name = row.name, .desc = row.desc, .trainable = 1};
    row.trainable = row.group = -1;
    LATHE_TRY(b->table->select(b->instance.self, &info, &row.trainable, &row.group));
    row.group = row.group == -1 ? 0 : row.group; /* not set: the default */
    if ((row.trainable != 0 && row.trainable != 1) || row.group < 0 || row.group > 1024)
        return lathe_error(LATHE_E_PLUGIN, "select of %s says trainable %d, group %d", row.name,
                           row.trainable, row.group);
    return lathe_params_add(&b->params, &row, &index);
}

static lathe_status add_rows(lathe__adapter_bench *b)
{
    const lathe_param rows[LATHE__N_ROWS] = {
        {.desc = lathe_desc_2d(LATHE_F32, LATHE__SITE_OUT, LATHE__SITE_IN),
         .role = LATHE_ROLE_MATRIX},
        {.desc = lathe_desc_1d(LATHE_F32, LATHE__SITE_OUT), .role = LATHE_ROLE_BIAS},
        {.desc = lathe_desc_1d(LATHE_F32, LATHE__SITE_IN), .role = LATHE_ROLE_NORM, .layer = -1},
        {.desc = lathe_desc_2d(LATHE_F32, LATHE__SITE_VOCABULARY, LATHE__SITE_IN),
         .role = LATHE_ROLE_EMBEDDING,
         .layer = -1},
        {.desc = lathe_desc_2d(LATHE_F32, LATHE__SITE_VOCABULARY, LATHE__SITE_OUT),
         .role = LATHE_ROLE_HEAD,
         .layer = -1},
    };
    (void)snprintf(b->names[LATHE__ROW_WEIGHT], sizeof b->names[0], "%s.weight", b->module);
    (void)snprintf(b->names[LATHE__ROW_BIAS], sizeof b->names[0], "%s.bias", b->module);
    (void)snprintf(b->names[LATHE__ROW_NORM], sizeof b->names[0],
                   "model.layers.0.input_layernorm.weight");
    (void)snprintf(b->names[LATHE__ROW_EMBEDDING], sizeof b->names[0], "model.embed_tokens.weight");
    (void)snprintf(b->names[LATHE__ROW_HEAD], sizeof b->names[0], "lm_head.weight");
    for (int i = 0; i < LATHE__N_ROWS; i++) {
        lathe_param row = rows[i];
        row.init = LATHE_INIT_NORMAL;
        row.init_scale = 0.2;
        LATHE_TRY(add_row(b, i, row));
    }
    LATHE_TRY(lathe_graph_create(&b->params, &b->g));
    for (int i = 0; i < LATHE__N_ROWS; i++)
        LATHE_TRY(lathe_graph_param(b->g, i, &b->rows[i]));
    b->site.weight = b->rows[LATHE__ROW_WEIGHT];
    b->site.bias = b->rows[LATHE__ROW_BIAS];
    return LATHE_OK;
}

static lathe_status plain(lathe__adapter_bench *b, lathe_val *out)
{
    return lathe_graph_api_get()->linear(b->g, b->x, b->site.weight, b->site.bias, "linear", out);
}

lathe_status lathe__adapter_bench_wrap(lathe__adapter_bench *b, int32_t enabled, lathe_val *out)
{
    const lathe_graph_api *api = lathe_graph_api_get();
    lathe_desc d;
    *out = LATHE_NONE;
    if (b->targeted && LATHE_HAS(b->table, wrap))
        LATHE_TRY(b->table->wrap(b->instance.self, api, b->g, &b->site, b->x, enabled, out));
    else
        LATHE_TRY(plain(b, out));
    LATHE_TRY(api->desc(b->g, *out, &d));
    if (d.rank != 2 || d.dims[0] != LATHE__SITE_TOKENS || d.dims[1] != LATHE__SITE_OUT ||
        d.dtype != b->compute)
        return lathe_error(LATHE_E_SHAPE, "wrap gives %s [%lld, %lld], expected %s [%d, %d]",
                           lathe_dtype_name(d.dtype), (long long)d.dims[0], (long long)d.dims[1],
                           lathe_dtype_name(b->compute), LATHE__SITE_TOKENS, LATHE__SITE_OUT);
    return LATHE_OK;
}

/* Checks that a run can make the parameters that the adapter declared. */
static lathe_status check_declared(const lathe__adapter_bench *b)
{
    for (int32_t i = LATHE__N_ROWS; i < b->params.n; i++) {
        const lathe_param *p = b->params.rows[i];
        int64_t n = 1;
        if (p->name[0] == '\0')
            return lathe_error(LATHE_E_PLUGIN, "a parameter has no name");
        if (p->desc.dtype != LATHE_F32 || p->desc.rank < 1 || p->desc.rank > LATHE_MAX_RANK)
            return lathe_error(LATHE_E_PLUGIN, "parameter %s is %s of rank %d, expected f32",
                               p->name, lathe_dtype_name(p->desc.dtype), p->desc.rank);
        for (int32_t k = 0; k < p->desc.rank; k++) {
            if (p->desc.dims[k] < 1 || p->desc.dims[k] > 1 << 20 || n * p->desc.dims[k] > 1 << 20)
                return lathe_error(LATHE_E_PLUGIN,
                                   "parameter %s has a dim of %lld at a site of [%d, %d]", p->name,
                                   (long long)p->desc.dims[k], LATHE__SITE_OUT, LATHE__SITE_IN);
            n *= p->desc.dims[k];
        }
        if (p->init < LATHE_INIT_ZERO || p->init > LATHE_INIT_COLUMN_NORMS ||
            !isfinite(p->init_scale) || (p->trainable != 0 && p->trainable != 1) || p->group < 0)
            return lathe_error(LATHE_E_PLUGIN,
                               "parameter %s has init %d, scale %g, trainable %d, group %d",
                               p->name, p->init, p->init_scale, p->trainable, p->group);
    }
    return LATHE_OK;
}

static lathe_status build_model(lathe__adapter_bench *b)
{
    const lathe_graph_api *api = lathe_graph_api_get();
    const lathe_op_attrs eps = {.eps = 1e-5f};
    lathe_val tokens, targets, h, norm[2], in[3];
    LATHE_TRY(
        lathe_graph_input(b->g, "tokens", lathe_desc_1d(LATHE_I32, LATHE__SITE_TOKENS), &tokens));
    LATHE_TRY(
        lathe_graph_input(b->g, "targets", lathe_desc_1d(LATHE_I32, LATHE__SITE_TOKENS), &targets));
    in[0] = tokens, in[1] = b->rows[LATHE__ROW_EMBEDDING];
    LATHE_TRY(api->node(b->g, LATHE_OP_EMBED, NULL, in, 2, &h, 1, -1, "embed"));
    in[0] = h, in[1] = b->rows[LATHE__ROW_NORM];
    LATHE_TRY(api->node(b->g, LATHE_OP_RMSNORM, &eps, in, 2, norm, 2, -1, "norm"));
    b->x = norm[0];
    b->targeted = LATHE_HAS(b->table, targets) ? b->table->targets(b->instance.self, &b->site) : 0;
    if (b->targeted != 0 && b->targeted != 1)
        return lathe_error(LATHE_E_PLUGIN, "targets() is %d, expected 0 or 1", b->targeted);
    LATHE_TRY(lathe__adapter_bench_wrap(b, 1, &b->y));
    LATHE_TRY(check_declared(b));
    const int32_t n = b->params.n;
    LATHE_TRY(lathe__adapter_bench_wrap(b, 0, &b->base_y));
    if (b->params.n != n)
        return lathe_error(LATHE_E_PLUGIN, "wrap with enabled = 0 declares new parameters");
    LATHE_TRY(plain(b, &b->plain_y));
    in[0] = b->y, in[1] = b->rows[LATHE__ROW_HEAD], in[2] = targets;
    LATHE_TRY(api->node(b->g, LATHE_OP_HEAD_LOGPROB, NULL, in, 3, &h, 1, -1, "head"));
    return lathe__sum(b->g, h, &b->loss);
}

lathe_status lathe__adapter_bench_init_in(lathe__adapter_bench *b, lathe__subject *s,
                                          const char *module, int32_t compute)
{
    *b = (lathe__adapter_bench){.table = s->table, .compute = compute};
    LATHE_TRY(lathe__instance(s, &b->instance));
    lathe_params_init(&b->params, compute);
    (void)snprintf(b->module, sizeof b->module, "model.layers.0.%s", module);
    b->site = (lathe_site){.size = sizeof b->site,
                           .module = b->module,
                           .in_features = LATHE__SITE_IN,
                           .out_features = LATHE__SITE_OUT,
                           .bias = LATHE_NONE};
    lathe_status status = add_rows(b);
    if (status == LATHE_OK)
        status = build_model(b);
    if (status != LATHE_OK)
        lathe__adapter_bench_fini(b);
    return status;
}

lathe_status lathe__adapter_bench_init(lathe__adapter_bench *b, lathe__subject *s,
                                       const char *module)
{
    return lathe__adapter_bench_init_in(b, s, module, LATHE_BF16);
}

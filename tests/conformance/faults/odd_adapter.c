/* Adapters without low-rank factors, which must pass: BitFit (arXiv:2106.10199) trains biases; IA3
 * (arXiv:2205.05638) scales the outputs of sites. */
#include "fault.h"

#include "lathe/adapter.h"

static lathe_status select_param(void *self, const lathe_param_info *param, int32_t *out_trainable,
                                 int32_t *out_group)
{
    (void)self;
    *out_group = 0;
    *out_trainable = IS(sound_bitfit)  ? param->role == LATHE_ROLE_BIAS
                     : IS(sound_norms) ? param->role == LATHE_ROLE_NORM
                     : IS(sound_head)  ? param->role == LATHE_ROLE_HEAD
                                       : 0;
    return LATHE_OK;
}

static int32_t targets(void *self, const lathe_site *site)
{
    (void)self, (void)site;
    return IS(sound_ia3);
}

/* Repeats l [out] as one row per token, in the dtype of y. */
static lathe_status rows_of(const lathe_graph_api *api, lathe_graph *g, lathe_val l, lathe_val y,
                            lathe_val *out)
{
    lathe_desc d;
    LATHE_TRY(api->desc(g, y, &d));
    const lathe_op_attrs repeat = {.count = d.dims[0]}, cast = {.dtype = d.dtype};
    const lathe_op_attrs ones = {.alpha = 0.0, .beta = 1.0}, product = {.alpha = 1.0, .trans_b = 1};
    lathe_val column, in[2];
    (void)repeat;
    (void)cast;
    const lathe_op_attrs first = {.start = 0, .count = 1};
    LATHE_TRY(api->node(g, LATHE_OP_TRANSPOSE, NULL, &y, 1, &column, 1, -1, "ia3"));
    LATHE_TRY(api->node(g, LATHE_OP_SLICE, &first, &column, 1, &column, 1, -1, "ia3"));
    LATHE_TRY(api->detach(g, column, &column));
    LATHE_TRY(api->node(g, LATHE_OP_SCALE, &ones, &column, 1, &column, 1, -1, "ia3.ones"));
    LATHE_TRY(api->node(g, LATHE_OP_TRANSPOSE, NULL, &column, 1, &column, 1, -1, "ia3.ones"));
    in[0] = column;
    in[1] = l;
    return api->node(g, LATHE_OP_MATMUL, &product, in, 2, out, 1, -1, "ia3.rows");
}

static lathe_status wrap(void *self, const lathe_graph_api *api, lathe_graph *g,
                         const lathe_site *site, lathe_val in, int32_t enabled, lathe_val *out)
{
    char name[128];
    lathe_val y, product[2];
    (void)self;
    LATHE_TRY(api->linear(g, in, site->weight, site->bias, "base", &y));
    *out = y;
    if (!enabled)
        return LATHE_OK;
    (void)snprintf(name, sizeof name, "%s.ia3_l", site->module);
    const lathe_param_decl decl = {.size = sizeof decl,
                                   .init = LATHE_INIT_ONE,
                                   .name = name,
                                   .desc = lathe_desc_2d(LATHE_F32, site->out_features, 1),
                                   .trainable = 1};
    LATHE_TRY(api->param(g, &decl, &product[1]));
    LATHE_TRY(rows_of(api, g, product[1], y, &product[1]));
    product[0] = y;
    return api->node(g, LATHE_OP_MUL, NULL, product, 2, out, 1, -1, "ia3");
}

static int32_t base_is_frozen(void *self)
{
    (void)self;
    return IS(sound_ia3);
}

/* Multiplies each row of w by its factor. */
static lathe_status merge(void *self, const lathe_site *site, const lathe_site_param *params,
                          int32_t n_params, float *w)
{
    (void)self, (void)n_params;
    for (int64_t i = 0; i < site->out_features * site->in_features; i++)
        w[i] *= params[0].data[i / site->in_features];
    return LATHE_OK;
}

static const lathe_adapter_v1 table = {
    .size = sizeof table,
    .revision = LATHE_ADAPTER_REVISION,
    .select = select_param,
    .targets = targets,
    .wrap = IS(sound_ia3) ? wrap : NULL,
    .base_is_frozen = base_is_frozen,
    .merge = IS(sound_ia3) ? merge : NULL,
};

FAULTY_PLUGIN(LATHE_KIND_ADAPTER, LATHE_ADAPTER_REVISION, &table);

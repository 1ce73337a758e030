/* Builds a model and an adapter around one of its sites. */
#include "check/harness/adapter_bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "check/harness/tiny_graph.h"
#include "plug/answers.h"

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
    const char *linear =
        b->site.kind == LATHE_SITE_LINEAR ? b->module : "model.layers.0.mlp.up_proj";
    (void)snprintf(b->names[LATHE__ROW_WEIGHT], sizeof b->names[0], "%s.weight", linear);
    (void)snprintf(b->names[LATHE__ROW_BIAS], sizeof b->names[0], "%s.bias", linear);
    (void)snprintf(b->names[LATHE__ROW_NORM], sizeof b->names[0],
                   "model.layers.0.input_layernorm.weight");
    (void)snprintf(b->names[LATHE__ROW_EMBEDDING], sizeof b->names[0],
                   LATHE__EMBEDDING_MODULE ".weight");
    (void)snprintf(b->names[LATHE__ROW_HEAD], sizeof b->names[0], LATHE__HEAD_MODULE ".weight");
    for (int i = 0; i < LATHE__N_ROWS; i++) {
        lathe_param row = rows[i];
        row.init = LATHE_INIT_NORMAL;
        row.init_scale = 0.2;
        LATHE_TRY(add_row(b, i, row));
    }
    LATHE_TRY(lathe_graph_create(&b->params, &b->g));
    for (int i = 0; i < LATHE__N_ROWS; i++)
        LATHE_TRY(lathe_graph_param(b->g, i, &b->rows[i]));
    b->site.weight = b->rows[b->site.kind == LATHE_SITE_EMBEDDING ? LATHE__ROW_EMBEDDING
                             : b->site.kind == LATHE_SITE_HEAD    ? LATHE__ROW_HEAD
                                                                  : LATHE__ROW_WEIGHT];
    if (b->site.kind == LATHE_SITE_LINEAR)
        b->site.bias = b->rows[LATHE__ROW_BIAS];
    return LATHE_OK;
}

/* The site's output without the adapter. */
static lathe_status plain(const lathe__adapter_bench *b, lathe_val *out)
{
    const lathe_graph_api *api = lathe_graph_api_get();
    const lathe_val in[2] = {b->tokens, b->site.weight};
    return b->site.kind == LATHE_SITE_EMBEDDING
               ? api->node(b->g, LATHE_OP_EMBED, NULL, in, 2, out, 1, -1, "embed")
               : api->linear(b->g, b->x, b->site.weight, b->site.bias, "linear", out);
}

/* Checks the shape and the dtype of what the adapter gave. rows, cols 0: at least 1. */
static lathe_status check_shape(const lathe__adapter_bench *b, const char *what, lathe_val v,
                                int64_t rows, int64_t cols, int64_t *out_cols)
{
    lathe_desc d;
    LATHE_TRY(lathe_graph_api_get()->desc(b->g, v, &d));
    *out_cols = d.rank == 2 ? d.dims[1] : 0;
    if (d.rank == 2 && d.dims[0] == rows && d.dtype == b->compute &&
        (cols > 0 ? d.dims[1] == cols : d.dims[1] >= 1))
        return LATHE_OK;
    return lathe_error(LATHE_E_SHAPE, "%s gives %s [%lld, %lld], expected %s [%lld, %lld]", what,
                       lathe_dtype_name(d.dtype), (long long)d.dims[0], (long long)d.dims[1],
                       lathe_dtype_name(b->compute), (long long)rows,
                       (long long)(cols > 0 ? cols : *out_cols));
}

/* *io * s, in the compute dtype. */
static lathe_status scale(lathe__adapter_bench *b, lathe_val *io)
{
    const lathe_graph_api *api = lathe_graph_api_get();
    const lathe_op_attrs rows = {.count = LATHE__SITE_TOKENS, .dtype = b->compute};
    lathe_val in[2] = {*io, LATHE_NONE};
    lathe_desc d;
    LATHE_TRY(api->desc(b->g, b->s, &d));
    if (d.rank != 1 || d.dims[0] != LATHE__SITE_VOCABULARY || d.dtype != LATHE_F32)
        return lathe_error(LATHE_E_SHAPE, "head: s gives %s of rank %d, expected f32 [%d]",
                           lathe_dtype_name(d.dtype), d.rank, (int)LATHE__SITE_VOCABULARY);
    LATHE_TRY(api->node(b->g, LATHE_OP_BROADCAST_ROW, &rows, &b->s, 1, &in[1], 1, -1, "head.s"));
    return api->node(b->g, LATHE_OP_MUL, NULL, in, 2, io, 1, -1, "head.scale");
}

/* The logits (x W^T + u v^T) * s; without the adapter x W^T. */
static lathe_status logits(lathe__adapter_bench *b, int32_t enabled, lathe_val *out)
{
    const lathe_graph_api *api = lathe_graph_api_get();
    int64_t rank = 0;
    lathe_val in[2];
    LATHE_TRY(plain(b, out));
    if (!b->targeted || !enabled)
        return LATHE_OK;
    b->u = b->v = b->s = LATHE_NONE;
    if (LATHE_HAS(b->table, head_scaled))
        LATHE_TRY(b->table->head_scaled(b->instance.self, api, b->g, &b->site, b->x, &b->u, &b->v,
                                        &b->s));
    else
        LATHE_TRY(b->table->head(b->instance.self, api, b->g, &b->site, b->x, &b->u, &b->v));
    LATHE_TRY(check_shape(b, "head: u", b->u, LATHE__SITE_TOKENS, 0, &rank));
    LATHE_TRY(check_shape(b, "head: v", b->v, LATHE__SITE_VOCABULARY, rank, &rank));
    in[0] = *out;
    LATHE_TRY(api->linear(b->g, b->u, b->v, LATHE_NONE, "head.adapter", &in[1]));
    LATHE_TRY(api->node(b->g, LATHE_OP_ADD, NULL, in, 2, out, 1, -1, "head.add"));
    return b->s == LATHE_NONE ? LATHE_OK : scale(b, out);
}

lathe_status lathe__adapter_bench_wrap(lathe__adapter_bench *b, int32_t enabled, lathe_val *out)
{
    const lathe_graph_api *api = lathe_graph_api_get();
    const int is_embedding = b->site.kind == LATHE_SITE_EMBEDDING;
    int64_t cols;
    *out = LATHE_NONE;
    if (b->site.kind == LATHE_SITE_HEAD)
        return logits(b, enabled, out);
    if (b->targeted && is_embedding)
        LATHE_TRY(b->table->embed(b->instance.self, api, b->g, &b->site, b->tokens, enabled, out));
    else if (b->targeted && LATHE_HAS(b->table, wrap))
        LATHE_TRY(b->table->wrap(b->instance.self, api, b->g, &b->site, b->x, enabled, out));
    else
        LATHE_TRY(plain(b, out));
    return check_shape(b, is_embedding ? "embed" : "wrap", *out, LATHE__SITE_TOKENS,
                       b->site.out_features, &cols);
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
                                   "parameter %s has a dim of %lld at a site of [%lld, %lld]",
                                   p->name, (long long)p->desc.dims[k],
                                   (long long)b->site.out_features, (long long)b->site.in_features);
            n *= p->desc.dims[k];
        }
        if (p->init < LATHE_INIT_ZERO || p->init > LATHE_INIT_MINOR_RIGHT ||
            !isfinite(p->init_scale) || (p->trainable != 0 && p->trainable != 1) || p->group < 0)
            return lathe_error(LATHE_E_PLUGIN,
                               "parameter %s has init %d, scale %g, trainable %d, group %d",
                               p->name, p->init, p->init_scale, p->trainable, p->group);
    }
    return LATHE_OK;
}

/* Asks whether the adapter changes the site. */
static lathe_status ask_targets(lathe__adapter_bench *b)
{
    const int32_t kind = b->site.kind;
    const int has = kind == LATHE_SITE_EMBEDDING ? LATHE_HAS(b->table, embed)
                    : kind == LATHE_SITE_HEAD    ? lathe_answer_adapts_head(b->table)
                                                 : 1;
    b->targeted =
        has && LATHE_HAS(b->table, targets) ? b->table->targets(b->instance.self, &b->site) : 0;
    if (b->targeted == 0 || b->targeted == 1)
        return LATHE_OK;
    return lathe_error(LATHE_E_PLUGIN, "targets() is %d, expected 0 or 1", b->targeted);
}

/* Builds the site with the adapter, with enabled = 0, and without, and checks what it declares. */
static lathe_status build_site(lathe__adapter_bench *b)
{
    LATHE_TRY(lathe__adapter_bench_wrap(b, 1, &b->y));
    LATHE_TRY(check_declared(b));
    const int32_t n = b->params.n;
    LATHE_TRY(lathe__adapter_bench_wrap(b, 0, &b->base_y));
    if (b->params.n != n)
        return lathe_error(LATHE_E_PLUGIN, "%s with enabled = 0 declares new parameters",
                           b->site.kind == LATHE_SITE_EMBEDDING ? "embed" : "wrap");
    return plain(b, &b->plain_y);
}

static lathe_status build_model(lathe__adapter_bench *b)
{
    const lathe_graph_api *api = lathe_graph_api_get();
    const lathe_op_attrs eps = {.eps = 1e-5f};
    lathe_val targets, h, norm[2], in[6];
    LATHE_TRY(lathe_graph_input(b->g, "tokens", lathe_desc_1d(LATHE_I32, LATHE__SITE_TOKENS),
                                &b->tokens));
    LATHE_TRY(
        lathe_graph_input(b->g, "targets", lathe_desc_1d(LATHE_I32, LATHE__SITE_TOKENS), &targets));
    LATHE_TRY(ask_targets(b));
    in[0] = b->tokens, in[1] = b->rows[LATHE__ROW_EMBEDDING];
    if (b->site.kind == LATHE_SITE_EMBEDDING)
        LATHE_TRY(build_site(b));
    else
        LATHE_TRY(api->node(b->g, LATHE_OP_EMBED, NULL, in, 2, &b->y, 1, -1, "embed"));
    in[0] = b->y, in[1] = b->rows[LATHE__ROW_NORM];
    LATHE_TRY(api->node(b->g, LATHE_OP_RMSNORM, &eps, in, 2, norm, 2, -1, "norm"));
    b->x = norm[0];
    h = LATHE_NONE;
    if (b->site.kind != LATHE_SITE_LINEAR)
        LATHE_TRY(api->linear(b->g, b->x, b->rows[LATHE__ROW_WEIGHT], b->rows[LATHE__ROW_BIAS],
                              "linear", &h));
    if (b->site.kind == LATHE_SITE_HEAD)
        b->x = h;
    if (b->site.kind != LATHE_SITE_EMBEDDING)
        LATHE_TRY(build_site(b));
    in[0] = b->site.kind == LATHE_SITE_LINEAR ? b->y : h;
    in[1] = b->rows[LATHE__ROW_HEAD], in[2] = targets, in[3] = b->u, in[4] = b->v, in[5] = b->s;
    LATHE_TRY(api->node(b->g, LATHE_OP_HEAD_LOGPROB, NULL, in, b->u == LATHE_NONE ? 3 : 6, &h, 1,
                        -1, "head"));
    return lathe__sum(b->g, h, &b->loss);
}

/* Makes the instance. At the embedding and the head: with a target_modules that has both, if the
 * settings do not have the site. */
static lathe_status make_instance(lathe__adapter_bench *b, lathe__subject *s)
{
    LATHE_TRY(lathe__instance(s, &b->instance));
    if (b->site.kind == LATHE_SITE_LINEAR || ask_targets(b) != LATHE_OK || b->targeted)
        return LATHE_OK;
    for (int32_t i = 0; i < s->plugin->n_fields; i++)
        if (strcmp(s->plugin->fields[i].key, "target_modules") == 0 &&
            s->plugin->fields[i].type == LATHE_T_STRING_LIST) {
            lathe_instance_fini(&b->instance);
            return lathe__instance_with(s, "target_modules = [\"embed_tokens\", \"lm_head\"]\n",
                                        &b->instance);
        }
    return LATHE_OK;
}

static lathe_site site_of(const char *module)
{
    if (strcmp(module, LATHE__EMBEDDING_MODULE) == 0)
        return (lathe_site){.layer = -1,
                            .in_features = LATHE__SITE_VOCABULARY,
                            .out_features = LATHE__SITE_IN,
                            .kind = LATHE_SITE_EMBEDDING};
    if (strcmp(module, LATHE__HEAD_MODULE) == 0)
        return (lathe_site){.layer = -1,
                            .in_features = LATHE__SITE_OUT,
                            .out_features = LATHE__SITE_VOCABULARY,
                            .kind = LATHE_SITE_HEAD};
    return (lathe_site){.in_features = LATHE__SITE_IN, .out_features = LATHE__SITE_OUT};
}

lathe_status lathe__adapter_bench_init_in(lathe__adapter_bench *b, lathe__subject *s,
                                          const char *module, int32_t compute)
{
    *b = (lathe__adapter_bench){
        .table = s->table, .compute = compute, .x = LATHE_NONE, .u = LATHE_NONE, .v = LATHE_NONE};
    b->site = site_of(module);
    (void)snprintf(b->module, sizeof b->module, "%s%s",
                   b->site.kind == LATHE_SITE_LINEAR ? "model.layers.0." : "", module);
    b->site.size = sizeof b->site;
    b->site.module = b->module;
    b->site.weight = b->site.bias = LATHE_NONE;
    LATHE_TRY(make_instance(b, s));
    lathe_params_init(&b->params, compute);
    b->params.ops = s->ops;
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

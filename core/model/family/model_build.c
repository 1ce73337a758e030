/* Builds the forward of a model: the functions that the core gives to build() of the family. */
#include "model/family/model_build.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/family/rope_table.h"
#include "model/family/tower_names.h"

_Static_assert((int)LATHE_PART_ATTENTION == (int)LATHE_BLOCK_ATTENTION &&
                   (int)LATHE_PART_MLP == (int)LATHE_BLOCK_MLP &&
                   (int)LATHE_PART_NONE == (int)LATHE_BLOCK_NONE,
               "parts of a layer have the numbers of the graph's blocks");

static const char *family_name(const lathe_model_build *b)
{
    return b->config->family.component->plugin->name;
}

static lathe_status check_layer(const lathe_model_build *b, int32_t layer)
{
    if (layer >= -1 && layer < b->config->n_layers)
        return LATHE_OK;
    return lathe_error(LATHE_E_PLUGIN, "%s: build() names layer %d of %d", family_name(b), layer,
                       b->config->n_layers);
}

/* The parameter of this name. */
static lathe_status param(const lathe_model_build *b, const char *name, lathe_val *out)
{
    if (b->param != NULL)
        return b->param(b->arg, name, out);
    const int32_t row = lathe_params_find(b->graph->params, name);
    if (row < 0)
        return lathe_error(LATHE_E_NOT_FOUND, "the model has no parameter %s", name);
    return lathe_graph_param(b->graph, row, out);
}

/* lathe_model_builder.tensor */
static lathe_status tensor(void *ctx, const char *name, lathe_val *out)
{
    const lathe_model_build *b = ctx;
    char text[LATHE_TENSOR_NAME];
    return param(b, lathe_text_tower_param(b->config, name, text, (int64_t)sizeof text), out);
}

/* "layers.3.mlp.gate_proj": the module without the family's prefix. */
static const char *label_of(const lathe_model_build *b, const char *module)
{
    const size_t n = strlen(b->config->prefix);
    return strncmp(module, b->config->prefix, n) == 0 ? module + n : module;
}

/* The parameter module + suffix. */
static lathe_status param_of(const lathe_model_build *b, const char *module, const char *suffix,
                             lathe_val *out)
{
    char name[300];
    (void)snprintf(name, sizeof name, "%.250s%s", module, suffix);
    return param(b, name, out);
}

/* lathe_model_builder.linear */
static lathe_status linear(void *ctx, int32_t layer, const char *module, int32_t has_bias,
                           lathe_val x, lathe_val *out)
{
    lathe_model_build *b = ctx;
    const lathe_graph_api *api = lathe_graph_api_get();
    lathe_desc w;
    char text[LATHE_TENSOR_NAME];
    LATHE_TRY(check_layer(b, layer));
    module = lathe_arena_strdup(
        &b->graph->arena, lathe_text_tower_param(b->config, module, text, (int64_t)sizeof text));
    if (module == NULL)
        return LATHE_E_NOMEM;
    lathe_site site = {
        .size = (uint32_t)sizeof site, .layer = layer, .module = module, .bias = LATHE_NONE};
    LATHE_TRY(param_of(b, module, ".weight", &site.weight));
    if (has_bias)
        LATHE_TRY(param_of(b, module, ".bias", &site.bias));
    LATHE_TRY(api->desc(b->graph, site.weight, &w));
    site.out_features = w.dims[0] / (b->graph->n_experts > 0 ? b->graph->n_experts : 1);
    site.in_features = w.dims[1];
    site.n_experts = b->graph->n_experts;
    const int32_t row = b->graph->values[site.weight].param;
    if (row >= 0) {
        const lathe_param *weight = b->graph->params->rows[row];
        site.weight_quantized = weight->format == NULL ? 0 : weight->planes_on_file ? 2 : 1;
        site.transposed_on_file = b->graph->params->rows[row]->transposed;
    }
    if (b->linear != NULL)
        return b->linear(b->arg, &site, x, out);
    return api->linear(b->graph, x, site.weight, site.bias, label_of(b, module), out);
}

/* lathe_model_builder.experts: a linear layer, while the graph knows of the experts. */
static lathe_status experts(void *ctx, int32_t layer, const char *module, int32_t n_experts,
                            lathe_val first, lathe_val x, lathe_val *out)
{
    lathe_model_build *b = ctx;
    lathe_desc rows, w;
    lathe_val weight;
    char text[LATHE_TENSOR_NAME];
    const char *in_table = lathe_text_tower_param(b->config, module, text, (int64_t)sizeof text);
    lathe_status status = param_of(b, in_table, "", &weight);
    const int is_fused = status == LATHE_OK;
    if (status == LATHE_E_NOT_FOUND) {
        lathe_error_clear();
        status = param_of(b, in_table, ".weight", &weight);
    }
    LATHE_TRY(status);
    LATHE_TRY(lathe_graph_api_get()->desc(b->graph, weight, &w));
    LATHE_TRY(lathe_graph_api_get()->desc(b->graph, first, &rows));
    if (n_experts < 1 || lathe_desc_count(&rows) != n_experts + 1 || w.dims[0] % n_experts != 0)
        return lathe_error(LATHE_E_PLUGIN, "%s: build() gives %s %d experts and %lld first rows",
                           family_name(b), module, (int)n_experts,
                           (long long)lathe_desc_count(&rows));
    b->graph->n_experts = n_experts;
    b->graph->expert_first = first;
    status = is_fused ? lathe_graph_api_get()->linear(b->graph, x, weight, LATHE_NONE,
                                                      label_of(b, in_table), out)
                      : linear(b, layer, module, 0, x, out);
    b->graph->n_experts = 0;
    b->graph->expert_first = LATHE_NONE;
    return status;
}

/* The module of a tensor "module.weight", in the graph's arena. */
static const char *module_of(const lathe_model_build *b, const char *tensor)
{
    const char *dot = strrchr(tensor, '.');
    return dot != NULL ? lathe_arena_strndup(&b->graph->arena, tensor, dot - tensor) : tensor;
}

/* A site outside the layers, with the weight [V,C] of this name. `other`: the name of the tensor
 * that a tied model does not have, or would have for its second use. */
static lathe_status outer_site(lathe_model_build *b, int32_t kind, const char *name,
                               const char *weight, const char *other, lathe_site *out)
{
    const int is_tied = b->config->tied && b->config->n_labels == 0;
    lathe_desc w;
    *out = (lathe_site){.size = (uint32_t)sizeof *out,
                        .layer = -1,
                        .module = module_of(b, name),
                        .bias = LATHE_NONE,
                        .kind = kind,
                        .tied = is_tied ? module_of(b, other) : NULL};
    if (out->module == NULL || (is_tied && out->tied == NULL))
        return LATHE_E_NOMEM;
    LATHE_TRY(param(b, weight, &out->weight));
    LATHE_TRY(lathe_graph_api_get()->desc(b->graph, out->weight, &w));
    out->in_features = w.dims[kind == LATHE_SITE_EMBEDDING ? 0 : 1];
    out->out_features = w.dims[kind == LATHE_SITE_EMBEDDING ? 1 : 0];
    return LATHE_OK;
}

lathe_status lathe_model_embedding_site(lathe_model_build *b, lathe_site *out)
{
    const lathe_model_config *c = b->config;
    return outer_site(b, LATHE_SITE_EMBEDDING, c->embedding, c->embedding, c->head, out);
}

lathe_status lathe_model_head_site(lathe_model_build *b, lathe_site *out)
{
    const lathe_model_config *c = b->config;
    return outer_site(b, LATHE_SITE_HEAD, c->head, lathe_model_head_name(c), c->embedding, out);
}

/* lathe_model_builder.embedding */
static lathe_status embedding(void *ctx, lathe_val *out)
{
    lathe_model_build *b = ctx;
    lathe_site site;
    if (b->is_embedded)
        return lathe_error(LATHE_E_PLUGIN, "%s: build() calls embedding() twice", family_name(b));
    LATHE_TRY(lathe_model_embedding_site(b, &site));
    b->is_embedded = 1;
    if (b->embed != NULL)
        return b->embed(b->arg, &site, b->tokens, out);
    const lathe_val in[2] = {b->tokens, site.weight};
    return lathe_graph_node(b->graph, LATHE_OP_EMBED, NULL, in, 2, out, 1, -1,
                            label_of(b, site.module));
}

/* An adapter's setting must not be ignored. */
static lathe_status check_embedding(lathe_model_build *b)
{
    lathe_site site;
    if (b->is_embedded || b->embeds == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_model_embedding_site(b, &site));
    if (!b->embeds(b->arg, &site))
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "the adapter changes the token embedding %s, and model family %s does not "
                       "offer it (its build() does not call embedding()): take it out of the "
                       "adapter's targets, or use another model",
                       site.module, family_name(b));
}

/* lathe_model_builder.cache */
static lathe_status cache(void *ctx, int32_t layer, lathe_val *k, lathe_val *v)
{
    const lathe_model_build *b = ctx;
    char label[64];
    LATHE_TRY(check_layer(b, layer));
    if (b->kv_len == LATHE_NONE || layer < 0)
        return LATHE_OK;
    (void)snprintf(label, sizeof label, "layers.%d.attention", (int)layer);
    const lathe_val k_in[3] = {b->cache_k[layer], *k, b->kv_len};
    const lathe_val v_in[3] = {b->cache_v[layer], *v, b->kv_len};
    LATHE_TRY(lathe_graph_node(b->graph, LATHE_OP_KV_APPEND, NULL, k_in, 3, k, 1, -1, label));
    return lathe_graph_node(b->graph, LATHE_OP_KV_APPEND, NULL, v_in, 3, v, 1, -1, label);
}

/* lathe_model_builder.rope */
static lathe_status rope(void *ctx, int32_t index, lathe_val *out)
{
    const lathe_model_build *b = ctx;
    if (index < 0 || index >= b->config->n_ropes)
        return lathe_error(LATHE_E_PLUGIN, "%s: build() requests table %d of %d rotary frequencies",
                           family_name(b), index, b->config->n_ropes);
    *out = b->ropes[index];
    return LATHE_OK;
}

/* lathe_model_builder.score_factor */
static lathe_status score_factor(void *ctx, int32_t index, double *out)
{
    const lathe_model_build *b = ctx;
    if (index < 0 || index >= b->config->n_ropes)
        return lathe_error(LATHE_E_PLUGIN, "%s: build() requests the factor of table %d of %d",
                           family_name(b), index, b->config->n_ropes);
    *out = b->config->ropes[index].score_factor;
    return LATHE_OK;
}

/* lathe_model_builder.constant */
static lathe_status constant(void *ctx, const char *name, const lathe_desc *desc, const void *data,
                             lathe_val *out)
{
    const lathe_model_build *b = ctx;
    return lathe_graph_const(b->graph, name, *desc, data, out);
}

/* lathe_model_builder.part */
static lathe_status part(void *ctx, int32_t layer, int32_t which)
{
    const lathe_model_build *b = ctx;
    LATHE_TRY(check_layer(b, layer));
    if (which < LATHE_PART_NONE || which > LATHE_PART_MLP)
        return lathe_error(LATHE_E_PLUGIN, "%s: build() names part %d of a layer", family_name(b),
                           which);
    lathe_graph_set_layer(b->graph, layer, which);
    return LATHE_OK;
}

static lathe_status add_report(lathe_model_build *b, const char *name, lathe_val sum, double weight,
                               int32_t is_mean)
{
    lathe_desc desc;
    LATHE_TRY(lathe_graph_api_get()->desc(b->graph, sum, &desc));
    if (name == NULL || name[0] == '\0' || b->n_reports == LATHE_MAX_REPORTS)
        return lathe_error(LATHE_E_PLUGIN,
                           "%s: build() reports a figure without a name, or more "
                           "than %d of them",
                           family_name(b), LATHE_MAX_REPORTS);
    if (desc.dtype != LATHE_F32 || lathe_desc_count(&desc) != 1)
        return lathe_error(LATHE_E_PLUGIN,
                           "%s: the figure %s that build() reports is no f32 scalar",
                           family_name(b), name);
    for (int32_t i = 0; i < b->n_reports; i++)
        if (strcmp(b->reports[i].name, name) == 0)
            return lathe_error(LATHE_E_PLUGIN, "%s: build() reports two figures called %s",
                               family_name(b), name);
    const char *copy = lathe_arena_strdup(&b->graph->arena, name);
    if (copy == NULL)
        return LATHE_E_NOMEM;
    b->reports[b->n_reports++] = (lathe_model_report){copy, sum, weight, is_mean};
    return LATHE_OK;
}

/* lathe_model_builder.report */
static lathe_status report(void *ctx, const char *name, lathe_val sum, double weight)
{
    return add_report(ctx, name, sum, weight, 0);
}

/* lathe_model_builder.report_mean */
static lathe_status report_mean(void *ctx, const char *name, lathe_val mean, double weight)
{
    return add_report(ctx, name, mean, weight, 1);
}

/* lathe_model_builder.token_mask */
static lathe_status token_mask(void *ctx, lathe_val *out)
{
    const lathe_model_build *b = ctx;
    *out = LATHE_NONE;
    return b->token_mask != NULL ? b->token_mask(b->arg, out) : LATHE_OK;
}

/* lathe_model_builder.expert_load */
static lathe_status expert_load(void *ctx, const char *correction, lathe_val chosen)
{
    const lathe_model_build *b = ctx;
    return b->expert_load != NULL ? b->expert_load(b->arg, correction, chosen) : LATHE_OK;
}

/* lathe_model_builder.embedded */
static lathe_status embedded(void *ctx, lathe_val *x)
{
    lathe_model_build *b = ctx;
    const lathe_graph_api *api = lathe_graph_api_get();
    if (b->embedding_noise == 0.0)
        return LATHE_OK;
    if (b->is_noise_added)
        return lathe_error(LATHE_E_PLUGIN, "%s: build() calls embedded() twice", family_name(b));
    const lathe_op_attrs attrs = {.alpha = b->embedding_noise,
                                  .rng_stream = api->rng_stream(b->graph)};
    lathe_val in[2] = {*x, LATHE_NONE};
    LATHE_TRY(api->rng(b->graph, &in[1]));
    b->is_noise_added = 1;
    return api->node(b->graph, LATHE_OP_UNIFORM_NOISE, &attrs, in, 2, x, 1, -1, "embedding noise");
}

/* A setting of the stage must not be ignored. */
static lathe_status check_noise(const lathe_model_build *b)
{
    if (b->embedding_noise == 0.0 || b->is_noise_added)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "the stage adds noise to the token embeddings, and model family %s does not "
                       "offer them (its build() does not call embedded()): train without noise, or "
                       "with another model",
                       family_name(b));
}

/* Refuses attention of the nodes from `first` on that does not follow key_end. */
static lathe_status check_attention(const lathe_model_build *b, int32_t first)
{
    for (int32_t i = first; b->key_end != LATHE_NONE && i < b->graph->n_nodes; i++) {
        const lathe_ir_node *n = &b->graph->nodes[i];
        if (n->op == LATHE_OP_ATTENTION && (n->in[5] != b->key_end || n->attrs.causal))
            return lathe_error(
                LATHE_E_CONFIG,
                "the stage's objective is not causal, and model family %s builds causal attention "
                "only (its ATTENTION does not take the builder's key_end): use another model, or "
                "the causal objective",
                family_name(b));
    }
    return LATHE_OK;
}

int64_t lathe_model_position_offset(const lathe_model_config *config, int64_t max_positions,
                                    int64_t longest)
{
    for (int32_t i = 0; i < config->n_ropes; i++)
        if (config->ropes[i].type == LATHE_ROPE_LONGROPE)
            return longest > config->ropes[i].original_max_positions ? max_positions : 0;
    return 0;
}

/* A table of rotary frequencies as a constant of the graph. */
static lathe_status rope_constant(const lathe_model_build *b, int32_t index, lathe_val *out)
{
    const lathe_rope_config *r = &b->config->ropes[index];
    const int64_t p = b->max_positions, both = p + lathe_model_position_offset(b->config, p, p);
    float *table = malloc((size_t)both * (size_t)r->dims * sizeof *table);
    if (table == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a RoPE table of %lld positions",
                           (long long)b->max_positions);
    lathe_rope_table(r, p, 0, table);
    if (both > p)
        lathe_rope_table(r, p, 1, table + p * r->dims);
    const lathe_desc desc = {LATHE_F32, 3, {both, 2, r->dims / 2, 1}};
    const lathe_status status = lathe_graph_const(b->graph, "rope.table", desc, table, out);
    free(table);
    return status;
}

static lathe_status check_inputs(const lathe_model_build *b)
{
    lathe_desc tokens, positions;
    const lathe_graph_api *api = lathe_graph_api_get();
    LATHE_TRY(api->desc(b->graph, b->tokens, &tokens));
    LATHE_TRY(api->desc(b->graph, b->positions, &positions));
    const int64_t n = lathe_desc_count(&tokens);
    if (b->batch < 1 || n % b->batch != 0 || lathe_desc_count(&positions) != n)
        return lathe_error(
            LATHE_E_SHAPE, "model: %lld tokens with %lld positions in a batch of %lld",
            (long long)n, (long long)lathe_desc_count(&positions), (long long)b->batch);
    if (b->max_positions < 1)
        return lathe_error(LATHE_E_CONFIG, "a model of %lld positions",
                           (long long)b->max_positions);
    return LATHE_OK;
}

/* The result of build() is the input of the head, so its shape and dtype must fit there. */
static lathe_status check_hidden(const lathe_model_build *b, lathe_val out)
{
    lathe_desc tokens, hidden;
    lathe_val embedding; /* the model computes in its dtype */
    LATHE_TRY(param(b, b->config->embedding, &embedding));
    LATHE_TRY(lathe_graph_api_get()->desc(b->graph, b->tokens, &tokens));
    LATHE_TRY(lathe_graph_api_get()->desc(b->graph, out, &hidden));
    const int32_t dtype = b->graph->values[embedding].desc.dtype;
    if (hidden.rank == 2 && hidden.dims[0] == tokens.dims[0] &&
        hidden.dims[1] == b->config->width && hidden.dtype == dtype)
        return LATHE_OK;
    return lathe_error(
        LATHE_E_PLUGIN,
        "%s: build() gives hidden states of another shape or dtype than [%lld, %lld]",
        family_name(b), (long long)tokens.dims[0], (long long)b->config->width);
}

lathe_status lathe_model_hidden(lathe_model_build *b, lathe_val *out)
{
    const lathe_model_v1 *table = b->config->family.table;
    const lathe_model_builder builder = {
        .size = (uint32_t)sizeof builder,
        .cached = b->kv_len != LATHE_NONE,
        .api = lathe_graph_api_get(),
        .graph = b->graph,
        .batch = b->batch,
        .max_positions = b->max_positions,
        .tokens = b->tokens,
        .positions = b->positions,
        .doc_start = b->doc_start,
        .kv_len = b->kv_len,
        .key_end = b->key_end,
        .ctx = b,
        .tensor = tensor,
        .linear = linear,
        .cache = cache,
        .rope = rope,
        .constant = constant,
        .part = part,
        .report = report,
        .embedded = embedded,
        .embedding = embedding,
        .experts = experts,
        .report_mean = report_mean,
        .token_mask = token_mask,
        .score_factor = score_factor,
        .expert_load = expert_load,
        .balance_loss = b->moe ? b->moe->balance_loss : (double)NAN,
        .router_z_loss = b->moe ? b->moe->z_loss : (double)NAN,
        .balance_by_layer = b->moe && b->moe->balance_over == LATHE_BALANCE_OVER_LAYER};
    b->n_reports = 0;
    b->is_noise_added = b->is_embedded = 0;
    LATHE_TRY(check_inputs(b));
    lathe_graph_set_layer(b->graph, -1, LATHE_BLOCK_NONE);
    for (int32_t i = 0; i < b->config->n_ropes; i++)
        LATHE_TRY(rope_constant(b, i, &b->ropes[i]));
    const int32_t first = b->graph->n_nodes;
    const lathe_status status = table->build(b->config->family.self, &builder, out);
    lathe_graph_set_layer(b->graph, -1, LATHE_BLOCK_NONE);
    LATHE_TRY(status);
    LATHE_TRY(check_noise(b));
    LATHE_TRY(check_embedding(b));
    LATHE_TRY(check_attention(b, first));
    return check_hidden(b, *out);
}

lathe_status lathe_model_head_input(const lathe_model_build *build, lathe_val hidden,
                                    lathe_val *out)
{
    const lathe_op_attrs scale = {.alpha = build->config->head_scale};
    *out = hidden;
    if (scale.alpha == 0.0 || scale.alpha == 1.0)
        return LATHE_OK;
    return lathe_graph_node(build->graph, LATHE_OP_SCALE, &scale, &hidden, 1, out, 1, -1,
                            "logit scale");
}

lathe_status lathe_model_head_bias(const lathe_model_build *build, lathe_val x, lathe_val *out_u,
                                   lathe_val *out_v)
{
    static const float one = 1.0f;
    lathe_graph *g = build->graph;
    const lathe_desc desc = g->values[x].desc;
    const lathe_op_attrs rows = {.count = desc.dims[0], .dtype = desc.dtype};
    const lathe_op_attrs column = {.count = 1, .dtype = desc.dtype};
    lathe_val bias, ones;
    *out_u = *out_v = LATHE_NONE;
    if (build->config->head_bias == NULL || build->config->n_labels > 0)
        return LATHE_OK;
    LATHE_TRY(param(build, build->config->head_bias, &bias));
    LATHE_TRY(lathe_graph_const(g, "head.one", lathe_desc_1d(LATHE_F32, 1), &one, &ones));
    LATHE_TRY(
        lathe_graph_node(g, LATHE_OP_BROADCAST_ROW, &rows, &ones, 1, out_u, 1, -1, "head.ones"));
    return lathe_graph_node(g, LATHE_OP_BROADCAST_COLUMN, &column, &bias, 1, out_v, 1, -1,
                            "head.bias");
}

const char *lathe_model_head_name(const lathe_model_config *config)
{
    return config->tied ? config->embedding : config->head;
}

lathe_status lathe_model_head(const lathe_model_build *build, lathe_val *out)
{
    return param(build, lathe_model_head_name(build->config), out);
}

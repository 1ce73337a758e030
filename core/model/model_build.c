/* What every family's forward is made of. */
#include "model/model_build.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/family.h"

lathe_status lathe_model_hidden(const lathe_model_build *build, lathe_val *out)
{
    lathe_desc tokens, positions;
    const lathe_graph_api *api = lathe_graph_api_get();
    LATHE_TRY(api->desc(build->graph, build->tokens, &tokens));
    LATHE_TRY(api->desc(build->graph, build->positions, &positions));
    const int64_t n = lathe_desc_count(&tokens);
    if (build->batch < 1 || n % build->batch != 0 || lathe_desc_count(&positions) != n)
        return lathe_error(
            LATHE_E_SHAPE, "model: %lld tokens with %lld positions in a batch of %lld",
            (long long)n, (long long)lathe_desc_count(&positions), (long long)build->batch);
    const lathe_status status = build->config->family->hidden(build, out);
    lathe_graph_set_layer(build->graph, -1, LATHE_BLOCK_NONE);
    return status;
}

const char *lathe_model_head_name(const lathe_model_config *config)
{
    return config->tied ? config->family->embedding : LATHE_HEAD_NAME;
}

lathe_status lathe_model_head(const lathe_model_build *build, lathe_val *out)
{
    return lathe__build_param(build, out, "%s", lathe_model_head_name(build->config));
}

static int32_t find_row(const lathe_model_build *b, const char *name)
{
    return lathe_params_find(b->graph->params, name);
}

lathe_status lathe__build_param(const lathe_model_build *b, lathe_val *out, const char *format, ...)
{
    char name[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (b->param != NULL)
        return b->param(b->arg, name, out);
    const int32_t row = find_row(b, name);
    if (row < 0)
        return lathe_error(LATHE_E_NOT_FOUND, "the model has no parameter %s", name);
    return lathe_graph_param(b->graph, row, out);
}

const char *lathe__build_name(const lathe_model_build *b, const char *before, int32_t layer,
                              const char *after)
{
    return lathe_arena_printf(&b->graph->arena, "%s%d%s", before, (int)layer, after);
}

/* "layers.3.mlp.gate_proj": the module without the family's prefix. */
static const char *label_of(const lathe_model_build *b, const char *module)
{
    const char *prefix = b->config->family->prefix;
    const size_t n = strlen(prefix);
    return strncmp(module, prefix, n) == 0 ? module + n : module;
}

lathe_status lathe__build_node(const lathe_model_build *b, int32_t op, const lathe_op_attrs *attrs,
                               const lathe_val *in, int32_t n_in, const char *label, lathe_val *out)
{
    lathe_val outs[LATHE_OP_MAX_OUT];
    const int32_t n_out = op == LATHE_OP_RMSNORM || op == LATHE_OP_ATTENTION ? 2
                          : op == LATHE_OP_LAYERNORM                         ? 3
                                                                             : 1;
    LATHE_TRY(lathe_graph_api_get()->node(b->graph, op, attrs, in, n_in, outs, n_out, -1,
                                          label_of(b, label)));
    *out = outs[0];
    return LATHE_OK;
}

lathe_status lathe__build_linear(const lathe_model_build *b, int32_t layer, const char *module,
                                 int32_t has_bias, lathe_val x, lathe_val *out)
{
    if (module == NULL)
        return LATHE_E_NOMEM;
    lathe_site site = {
        .size = (uint32_t)sizeof site, .layer = layer, .module = module, .bias = LATHE_NONE};
    LATHE_TRY(lathe__build_param(b, &site.weight, "%s.weight", module));
    if (has_bias)
        LATHE_TRY(lathe__build_param(b, &site.bias, "%s.bias", module));
    const lathe_graph_api *api = lathe_graph_api_get();
    lathe_desc w;
    LATHE_TRY(api->desc(b->graph, site.weight, &w));
    site.out_features = w.dims[0];
    site.in_features = w.dims[1];
    const int32_t row = b->graph->values[site.weight].param;
    if (row >= 0) {
        site.weight_quantized = b->graph->params->rows[row]->quantized;
        site.transposed_on_file = b->graph->params->rows[row]->transposed;
    }
    if (b->linear != NULL)
        return b->linear(b->arg, &site, x, out);
    return api->linear(b->graph, x, site.weight, site.bias, label_of(b, module), out);
}

lathe_status lathe__build_norm(const lathe_model_build *b, int32_t op, const char *module,
                               lathe_val x, lathe_val *out)
{
    if (module == NULL)
        return LATHE_E_NOMEM;
    lathe_val in[3] = {x, LATHE_NONE, LATHE_NONE};
    LATHE_TRY(lathe__build_param(b, &in[1], "%s.weight", module));
    if (op == LATHE_OP_LAYERNORM)
        LATHE_TRY(lathe__build_param(b, &in[2], "%s.bias", module));
    const lathe_op_attrs attrs = {.eps = (float)b->config->norm_eps};
    return lathe__build_node(b, op, &attrs, in, op == LATHE_OP_LAYERNORM ? 3 : 2, module, out);
}

/* Columns [third*C, (third+1)*C) of the fused projection, for a cache of its own. */
static lathe_status split_fused(const lathe_model_build *b, lathe_val fused, int64_t third,
                                const char *label, lathe_val *out)
{
    const int64_t width = (int64_t)b->config->n_heads * b->config->head_dim;
    const lathe_op_attrs rows = {.start = third * width, .count = width};
    lathe_val v;
    LATHE_TRY(lathe__build_node(b, LATHE_OP_TRANSPOSE, NULL, &fused, 1, label, &v));
    LATHE_TRY(lathe__build_node(b, LATHE_OP_SLICE, &rows, &v, 1, label, &v));
    return lathe__build_node(b, LATHE_OP_TRANSPOSE, NULL, &v, 1, label, out);
}

lathe_status lathe__build_attention(const lathe_model_build *b, int32_t layer, int32_t fused,
                                    lathe_val q, lathe_val k, lathe_val v, lathe_val *out)
{
    const lathe_model_config *c = b->config;
    char label[64];
    (void)snprintf(label, sizeof label, "layers.%d.attention", (int)layer);
    if (b->kv_len != LATHE_NONE) {
        if (fused) {
            const lathe_val all = q;
            LATHE_TRY(split_fused(b, all, 0, label, &q));
            LATHE_TRY(split_fused(b, all, 1, label, &k));
            LATHE_TRY(split_fused(b, all, 2, label, &v));
            fused = 0;
        }
        const lathe_val k_in[3] = {b->cache_k[layer], k, b->kv_len};
        const lathe_val v_in[3] = {b->cache_v[layer], v, b->kv_len};
        LATHE_TRY(lathe__build_node(b, LATHE_OP_KV_APPEND, NULL, k_in, 3, label, &k));
        LATHE_TRY(lathe__build_node(b, LATHE_OP_KV_APPEND, NULL, v_in, 3, label, &v));
    }
    const lathe_op_attrs attrs = {.n_heads = c->n_heads,
                                  .n_kv_heads = c->n_kv_heads,
                                  .head_dim = c->head_dim,
                                  .scale = (float)(1.0 / sqrt((double)c->head_dim)),
                                  .causal = 1,
                                  .window = (int32_t)c->window,
                                  .fused_qkv = fused,
                                  .batch = b->batch};
    const lathe_val in[5] = {q, fused ? LATHE_NONE : k, fused ? LATHE_NONE : v, b->doc_start,
                             b->kv_len};
    return lathe__build_node(b, LATHE_OP_ATTENTION, &attrs, in, 5, label, out);
}

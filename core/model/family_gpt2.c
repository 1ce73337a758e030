/* GPT-2: LayerNorm, learned positions, fused q k v, tanh-GELU; files hold its Conv1D weights as [in, out]. */
#include <math.h>

#include "base/error.h"
#include "model/family.h"

static const char *const keys[] = {"n_embd",
                                   "n_inner",
                                   "n_layer",
                                   "n_head",
                                   "n_positions",
                                   "n_ctx",
                                   "hidden_size",
                                   "num_hidden_layers",
                                   "num_attention_heads",
                                   "max_position_embeddings",
                                   "layer_norm_epsilon",
                                   "activation_function",
                                   NULL};

static void read(lathe_config_reader *r, lathe_model_config *out)
{
    out->width =
        lathe__config_int(r, lathe__config_alias(r, "n_embd", "hidden_size"), 768, 1, 1 << 20);
    out->ffn = lathe__config_int(r, "n_inner", 4 * out->width, 1, 1 << 24);
    out->n_layers = (int32_t)lathe__config_int(
        r, lathe__config_alias(r, "n_layer", "num_hidden_layers"), 12, 1, 10000);
    out->n_heads = (int32_t)lathe__config_int(
        r, lathe__config_alias(r, "n_head", "num_attention_heads"), 12, 1, 65536);
    out->max_positions = lathe__config_int(
        r, lathe__config_alias(r, "n_positions", "max_position_embeddings"), 1024, 1, INT32_MAX);
    out->norm_eps = lathe__config_positive(r, "layer_norm_epsilon", 1e-5);
    out->tied = lathe__config_bool(r, "tie_word_embeddings", 1);
    out->n_kv_heads = out->n_heads;
    out->head_dim = (int32_t)(out->width / out->n_heads);
    out->rope.type = LATHE_ROPE_NONE;
    out->qkv_bias = out->out_bias = out->mlp_bias = 1;
    lathe__config_only_string(r, "activation_function", "gelu_new|gelu_pytorch_tanh");
    lathe__config_only_number(r, "scale_attn_weights", 1.0);
    lathe__config_only_number(r, "scale_attn_by_inverse_layer_idx", 0.0);
    lathe__config_only_number(r, "add_cross_attention", 0.0);
    if (r->status == LATHE_OK && out->width % out->n_heads != 0)
        lathe__config_refuse(r, lathe__config_alias(r, "n_embd", "hidden_size"),
                             "it must be a multiple of the number of heads");
    static const char *const dropouts[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
    for (int i = 0; i < 3; i++) {
        const double p = lathe__config_share(r, dropouts[i]);
        if (p > out->dropout) {
            out->dropout = p;
            out->dropout_key = dropouts[i];
        }
    }
}

static void write(const lathe_model_config *c, json_t *object)
{
    json_object_set_new(object, "n_embd", json_integer(c->width));
    json_object_set_new(object, "n_inner", json_integer(c->ffn));
    json_object_set_new(object, "n_layer", json_integer(c->n_layers));
    json_object_set_new(object, "n_head", json_integer(c->n_heads));
    json_object_set_new(object, "n_positions", json_integer(c->max_positions));
    json_object_set_new(object, "n_ctx", json_integer(c->max_positions));
    json_object_set_new(object, "layer_norm_epsilon", json_real(c->norm_eps));
    json_object_set_new(object, "activation_function", json_string("gelu_new"));
    json_object_set_new(object, "attn_pdrop", json_real(0.0));
    json_object_set_new(object, "embd_pdrop", json_real(0.0));
    json_object_set_new(object, "resid_pdrop", json_real(0.0));
}

/* ---- parameters ---- */

static lathe_status add_conv(lathe_params *params, int32_t layer, const char *module,
                             int64_t out_features, int64_t in_features, double std)
{
    LATHE_TRY(lathe__family_param(params, layer, LATHE_ROLE_MATRIX, out_features, in_features,
                                  LATHE_INIT_NORMAL, std, 1, "transformer.h.%d.%s.weight",
                                  (int)layer, module));
    return lathe__family_param(params, layer, LATHE_ROLE_BIAS, out_features, 0, LATHE_INIT_ZERO,
                               0.0, 0, "transformer.h.%d.%s.bias", (int)layer, module);
}

static lathe_status add_norm(lathe_params *params, int32_t layer, const char *module, int64_t n)
{
    LATHE_TRY(lathe__family_param(params, layer, LATHE_ROLE_NORM, n, 0, LATHE_INIT_ONE, 0.0, 0,
                                  "transformer.%s.weight", module));
    return lathe__family_param(params, layer, LATHE_ROLE_BIAS, n, 0, LATHE_INIT_ZERO, 0.0, 0,
                               "transformer.%s.bias", module);
}

static lathe_status add_layer(const lathe_model_config *c, lathe_params *params, int32_t layer)
{
    /* projections back into the residual stream start smaller: the stream sums 2L of them */
    const double residual_std = c->init_range / sqrt(2.0 * c->n_layers);
    char ln_1[32], ln_2[32];
    (void)snprintf(ln_1, sizeof ln_1, "h.%d.ln_1", (int)layer);
    (void)snprintf(ln_2, sizeof ln_2, "h.%d.ln_2", (int)layer);
    LATHE_TRY(add_norm(params, layer, ln_1, c->width));
    LATHE_TRY(add_conv(params, layer, "attn.c_attn", 3 * c->width, c->width, c->init_range));
    lathe__family_heads(params, c->head_dim, "transformer.h.%d.attn.c_attn.weight", (int)layer);
    LATHE_TRY(add_conv(params, layer, "attn.c_proj", c->width, c->width, residual_std));
    LATHE_TRY(add_norm(params, layer, ln_2, c->width));
    LATHE_TRY(add_conv(params, layer, "mlp.c_fc", c->ffn, c->width, c->init_range));
    return add_conv(params, layer, "mlp.c_proj", c->width, c->ffn, residual_std);
}

static lathe_status add_params(const lathe_model_config *c, lathe_params *params)
{
    LATHE_TRY(lathe__family_param(params, -1, LATHE_ROLE_EMBEDDING, c->vocab, c->width,
                                  LATHE_INIT_NORMAL, c->init_range, 0, "transformer.wte.weight"));
    LATHE_TRY(lathe__family_param(params, -1, LATHE_ROLE_EMBEDDING, c->max_positions, c->width,
                                  LATHE_INIT_NORMAL, c->init_range, 0, "transformer.wpe.weight"));
    for (int32_t layer = 0; layer < c->n_layers; layer++)
        LATHE_TRY(add_layer(c, params, layer));
    LATHE_TRY(add_norm(params, -1, "ln_f", c->width));
    if (c->tied)
        return LATHE_OK;
    return lathe__family_param(params, -1, LATHE_ROLE_HEAD, c->vocab, c->width, LATHE_INIT_NORMAL,
                               c->init_range, 0, "%s", LATHE_HEAD_NAME);
}

/* ---- forward ---- */

static lathe_status site(const lathe_model_build *b, int32_t layer, const char *module, lathe_val x,
                         lathe_val *out)
{
    return lathe__build_linear(b, layer, lathe__build_name(b, "transformer.h.", layer, module), 1,
                               x, out);
}

static lathe_status norm(const lathe_model_build *b, int32_t layer, const char *module, lathe_val x,
                         lathe_val *out)
{
    return lathe__build_norm(b, LATHE_OP_LAYERNORM,
                             lathe__build_name(b, "transformer.h.", layer, module), x, out);
}

static lathe_status layer_hidden(const lathe_model_build *b, int32_t layer, lathe_val x,
                                 lathe_val *out)
{
    lathe_val h;
    lathe_graph_set_layer(b->graph, layer, LATHE_BLOCK_ATTENTION);
    LATHE_TRY(norm(b, layer, ".ln_1", x, &h));
    LATHE_TRY(site(b, layer, ".attn.c_attn", h, &h));
    LATHE_TRY(lathe__build_attention(b, layer, 1, h, LATHE_NONE, LATHE_NONE, &h));
    LATHE_TRY(site(b, layer, ".attn.c_proj", h, &h));
    const lathe_val first[2] = {h, x};
    LATHE_TRY(lathe__build_node(b, LATHE_OP_ADD, NULL, first, 2, "attention residual", &x));

    lathe_graph_set_layer(b->graph, layer, LATHE_BLOCK_MLP);
    LATHE_TRY(norm(b, layer, ".ln_2", x, &h));
    LATHE_TRY(site(b, layer, ".mlp.c_fc", h, &h));
    LATHE_TRY(lathe__build_node(b, LATHE_OP_GELU_TANH, NULL, &h, 1, "mlp.gelu", &h));
    LATHE_TRY(site(b, layer, ".mlp.c_proj", h, &h));
    const lathe_val second[2] = {h, x};
    return lathe__build_node(b, LATHE_OP_ADD, NULL, second, 2, "mlp residual", out);
}

static lathe_status hidden(const lathe_model_build *b, lathe_val *out)
{
    const lathe_model_config *c = b->config;
    if (b->max_positions < 1 || b->max_positions > c->max_positions)
        return lathe_error(LATHE_E_CONFIG,
                           "%lld positions are asked of a model that has learned %lld",
                           (long long)b->max_positions, (long long)c->max_positions);
    lathe_graph_set_layer(b->graph, -1, LATHE_BLOCK_NONE);
    lathe_val x[2], token[2] = {b->tokens, LATHE_NONE}, position[2] = {b->positions, LATHE_NONE};
    LATHE_TRY(lathe__build_param(b, &token[1], "transformer.wte.weight"));
    LATHE_TRY(lathe__build_param(b, &position[1], "transformer.wpe.weight"));
    LATHE_TRY(lathe__build_node(b, LATHE_OP_EMBED, NULL, token, 2, "wte", &x[0]));
    LATHE_TRY(lathe__build_node(b, LATHE_OP_EMBED, NULL, position, 2, "wpe", &x[1]));
    LATHE_TRY(lathe__build_node(b, LATHE_OP_ADD, NULL, x, 2, "embeddings", out));
    for (int32_t layer = 0; layer < c->n_layers; layer++)
        LATHE_TRY(layer_hidden(b, layer, *out, out));
    lathe_graph_set_layer(b->graph, -1, LATHE_BLOCK_NONE);
    return lathe__build_norm(b, LATHE_OP_LAYERNORM, "transformer.ln_f", *out, out);
}

const lathe_family lathe__family_gpt2 = {.model_type = "gpt2",
                                         .architecture = "GPT2LMHeadModel",
                                         .prefix = "transformer.",
                                         .embedding = "transformer.wte.weight",
                                         .keys = keys,
                                         .warns_of_dropout = 1,
                                         .read = read,
                                         .write = write,
                                         .params = add_params,
                                         .hidden = hidden};

/* Llama: RMSNorm, rotary positions, grouped attention, SwiGLU. Qwen2 and Qwen3 are made of the same. */
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "model/family.h"
#include "model/rope_table.h"

static const char *const keys[] = {"hidden_size",
                                   "intermediate_size",
                                   "num_hidden_layers",
                                   "num_attention_heads",
                                   "num_key_value_heads",
                                   "head_dim",
                                   "max_position_embeddings",
                                   "rms_norm_eps",
                                   "rope_theta",
                                   "rope_scaling",
                                   "rope_parameters",
                                   "hidden_act",
                                   "attention_bias",
                                   "mlp_bias",
                                   NULL};

void lathe__llama_read(lathe_config_reader *r, lathe_model_config *out)
{
    out->width = lathe__config_int(r, "hidden_size", LATHE_REQUIRED, 1, 1 << 20);
    out->ffn = lathe__config_int(r, "intermediate_size", LATHE_REQUIRED, 1, 1 << 24);
    out->n_layers = (int32_t)lathe__config_int(r, "num_hidden_layers", LATHE_REQUIRED, 1, 10000);
    out->n_heads = (int32_t)lathe__config_int(r, "num_attention_heads", LATHE_REQUIRED, 1, 65536);
    out->n_kv_heads = (int32_t)lathe__config_int(r, "num_key_value_heads", out->n_heads, 1, 65536);
    out->head_dim = (int32_t)lathe__config_int(r, "head_dim", out->width / out->n_heads, 2, 1024);
    out->max_positions = lathe__config_int(r, "max_position_embeddings", 2048, 1, INT32_MAX);
    out->norm_eps = lathe__config_positive(r, "rms_norm_eps", 1e-6);
    out->tied = lathe__config_bool(r, "tie_word_embeddings", 0);
    lathe__config_rope(r, out);
    lathe__config_only_string(r, "hidden_act", "silu|swish");
    lathe__config_full_attention(r, out->n_layers);
    out->dropout = lathe__config_share(r, "attention_dropout");
    if (out->dropout > 0.0)
        out->dropout_key = "attention_dropout";
    if (r->status == LATHE_OK && out->n_heads % out->n_kv_heads != 0)
        lathe__config_refuse(r, "num_key_value_heads", "it must divide num_attention_heads");
    const int is_given = json_is_integer(json_object_get(r->object, "head_dim"));
    if (r->status == LATHE_OK && !is_given && out->width % out->n_heads != 0)
        lathe__config_refuse(
            r, "hidden_size",
            "it must be a multiple of num_attention_heads, unless head_dim is set");
    if (r->status == LATHE_OK && out->head_dim % 2 != 0)
        lathe__config_refuse(r, is_given ? "head_dim" : "hidden_size",
                             is_given ? "rotary positions need an even head size"
                                      : "hidden_size / num_attention_heads must be even, for the "
                                        "rotary positions");
}

/* Llama's attention has no window; a file that was another model's may still have the key. transformers
 * evaluates such a model without a window and generates with one, in its cache. */
static void warn_of_window(const lathe_config_reader *r, const lathe_model_config *out)
{
    const json_t *window = json_object_get(r->object, "sliding_window");
    if (json_is_integer(window) && json_integer_value(window) < out->max_positions)
        lathe_log(LATHE_LOG_WARN,
                  "%s: sliding_window is %lld and changes nothing: the attention of model_type "
                  "llama has no window",
                  r->name, (long long)json_integer_value(window));
}

static void read(lathe_config_reader *r, lathe_model_config *out)
{
    lathe__llama_read(r, out);
    warn_of_window(r, out);
    out->qkv_bias = out->out_bias = lathe__config_bool(r, "attention_bias", 0);
    out->mlp_bias = lathe__config_bool(r, "mlp_bias", 0);
}

static void write_rope(const lathe_model_config *c, json_t *object)
{
    json_object_set_new(object, "rope_theta", json_real(c->rope.theta));
    json_t *rope = json_null();
    if (c->rope.type == LATHE_ROPE_LINEAR) {
        rope = json_pack("{s:s,s:f}", "rope_type", "linear", "factor", c->rope.factor);
    } else if (c->rope.type == LATHE_ROPE_LLAMA3) {
        rope = json_pack("{s:s,s:f,s:f,s:f,s:I}", "rope_type", "llama3", "factor", c->rope.factor,
                         "low_freq_factor", c->rope.low_freq_factor, "high_freq_factor",
                         c->rope.high_freq_factor, "original_max_position_embeddings",
                         (json_int_t)c->rope.original_max_positions);
    }
    json_object_set_new(object, "rope_scaling", rope);
}

void lathe__llama_write(const lathe_model_config *c, json_t *object)
{
    json_object_set_new(object, "hidden_size", json_integer(c->width));
    json_object_set_new(object, "intermediate_size", json_integer(c->ffn));
    json_object_set_new(object, "num_hidden_layers", json_integer(c->n_layers));
    json_object_set_new(object, "num_attention_heads", json_integer(c->n_heads));
    json_object_set_new(object, "num_key_value_heads", json_integer(c->n_kv_heads));
    json_object_set_new(object, "head_dim", json_integer(c->head_dim));
    json_object_set_new(object, "max_position_embeddings", json_integer(c->max_positions));
    json_object_set_new(object, "rms_norm_eps", json_real(c->norm_eps));
    json_object_set_new(object, "hidden_act", json_string("silu"));
    json_object_set_new(object, "attention_dropout", json_real(0.0));
    write_rope(c, object);
}

static void write(const lathe_model_config *c, json_t *object)
{
    lathe__llama_write(c, object);
    json_object_set_new(object, "attention_bias", json_boolean(c->qkv_bias));
    json_object_set_new(object, "mlp_bias", json_boolean(c->mlp_bias));
}

/* ---- parameters ---- */

static lathe_status add_linear(const lathe_model_config *c, lathe_params *params, int32_t layer,
                               const char *module, int64_t out_features, int64_t in_features,
                               int32_t bias)
{
    LATHE_TRY(lathe__family_param(params, layer, LATHE_ROLE_MATRIX, out_features, in_features,
                                  LATHE_INIT_NORMAL, c->init_range, 0, "model.layers.%d.%s.weight",
                                  (int)layer, module));
    if (!bias)
        return LATHE_OK;
    return lathe__family_param(params, layer, LATHE_ROLE_BIAS, out_features, 0, LATHE_INIT_ZERO,
                               0.0, 0, "model.layers.%d.%s.bias", (int)layer, module);
}

static lathe_status add_norm(lathe_params *params, int32_t layer, const char *module, int64_t n)
{
    return lathe__family_param(params, layer, LATHE_ROLE_NORM, n, 0, LATHE_INIT_ONE, 0.0, 0,
                               "model.layers.%d.%s.weight", (int)layer, module);
}

static lathe_status add_layer(const lathe_model_config *c, int32_t qk_norm, lathe_params *params,
                              int32_t layer)
{
    const int64_t q = (int64_t)c->n_heads * c->head_dim, kv = (int64_t)c->n_kv_heads * c->head_dim;
    LATHE_TRY(add_linear(c, params, layer, "self_attn.q_proj", q, c->width, c->qkv_bias));
    LATHE_TRY(add_linear(c, params, layer, "self_attn.k_proj", kv, c->width, c->qkv_bias));
    LATHE_TRY(add_linear(c, params, layer, "self_attn.v_proj", kv, c->width, c->qkv_bias));
    LATHE_TRY(add_linear(c, params, layer, "self_attn.o_proj", c->width, q, c->out_bias));
    lathe__family_heads(params, c->head_dim, "model.layers.%d.self_attn.q_proj.weight", (int)layer);
    lathe__family_heads(params, c->head_dim, "model.layers.%d.self_attn.k_proj.weight", (int)layer);
    if (qk_norm) {
        LATHE_TRY(add_norm(params, layer, "self_attn.q_norm", c->head_dim));
        LATHE_TRY(add_norm(params, layer, "self_attn.k_norm", c->head_dim));
    }
    LATHE_TRY(add_linear(c, params, layer, "mlp.gate_proj", c->ffn, c->width, c->mlp_bias));
    LATHE_TRY(add_linear(c, params, layer, "mlp.up_proj", c->ffn, c->width, c->mlp_bias));
    LATHE_TRY(add_linear(c, params, layer, "mlp.down_proj", c->width, c->ffn, c->mlp_bias));
    LATHE_TRY(add_norm(params, layer, "input_layernorm", c->width));
    return add_norm(params, layer, "post_attention_layernorm", c->width);
}

lathe_status lathe__llama_params(const lathe_model_config *c, int32_t qk_norm, lathe_params *params)
{
    LATHE_TRY(lathe__family_param(params, -1, LATHE_ROLE_EMBEDDING, c->vocab, c->width,
                                  LATHE_INIT_NORMAL, c->init_range, 0,
                                  "model.embed_tokens.weight"));
    for (int32_t layer = 0; layer < c->n_layers; layer++)
        LATHE_TRY(add_layer(c, qk_norm, params, layer));
    LATHE_TRY(lathe__family_param(params, -1, LATHE_ROLE_NORM, c->width, 0, LATHE_INIT_ONE, 0.0, 0,
                                  "model.norm.weight"));
    if (c->tied)
        return LATHE_OK;
    return lathe__family_param(params, -1, LATHE_ROLE_HEAD, c->vocab, c->width, LATHE_INIT_NORMAL,
                               c->init_range, 0, "%s", LATHE_HEAD_NAME);
}

/* ---- forward ---- */

static lathe_status site(const lathe_model_build *b, int32_t layer, const char *module,
                         int32_t bias, lathe_val x, lathe_val *out)
{
    return lathe__build_linear(b, layer, lathe__build_name(b, "model.layers.", layer, module), bias,
                               x, out);
}

/* q or k: projected, perhaps normalised per head, rotated. */
static lathe_status rotated(const lathe_model_build *b, int32_t layer, const char *proj,
                            const char *norm, lathe_val x, lathe_val table, lathe_val *out)
{
    lathe_val v;
    LATHE_TRY(site(b, layer, proj, b->config->qkv_bias, x, &v));
    if (norm != NULL)
        LATHE_TRY(lathe__build_norm(b, LATHE_OP_RMSNORM,
                                    lathe__build_name(b, "model.layers.", layer, norm), v, &v));
    const lathe_val in[3] = {v, b->positions, table};
    const lathe_op_attrs attrs = {.head_dim = b->config->head_dim};
    const char *label = lathe__build_name(b, "layers.", layer, norm == NULL ? proj : norm);
    if (label == NULL)
        return LATHE_E_NOMEM;
    return lathe__build_node(b, LATHE_OP_ROPE, &attrs, in, 3, label, out);
}

static lathe_status attention_block(const lathe_model_build *b, int32_t layer, int32_t qk_norm,
                                    lathe_val table, lathe_val x, lathe_val *out)
{
    lathe_graph_set_layer(b->graph, layer, LATHE_BLOCK_ATTENTION);
    lathe_val h, q, k, v;
    LATHE_TRY(lathe__build_norm(b, LATHE_OP_RMSNORM,
                                lathe__build_name(b, "model.layers.", layer, ".input_layernorm"), x,
                                &h));
    LATHE_TRY(
        rotated(b, layer, ".self_attn.q_proj", qk_norm ? ".self_attn.q_norm" : NULL, h, table, &q));
    LATHE_TRY(
        rotated(b, layer, ".self_attn.k_proj", qk_norm ? ".self_attn.k_norm" : NULL, h, table, &k));
    LATHE_TRY(site(b, layer, ".self_attn.v_proj", b->config->qkv_bias, h, &v));
    LATHE_TRY(lathe__build_attention(b, layer, 0, q, k, v, &h));
    LATHE_TRY(site(b, layer, ".self_attn.o_proj", b->config->out_bias, h, &h));
    const lathe_val sum[2] = {h,
                              x}; /* into h: nothing needs it, while the norm's backward needs x */
    return lathe__build_node(b, LATHE_OP_ADD, NULL, sum, 2, "attention residual", out);
}

static lathe_status mlp_block(const lathe_model_build *b, int32_t layer, lathe_val x,
                              lathe_val *out)
{
    lathe_graph_set_layer(b->graph, layer, LATHE_BLOCK_MLP);
    const int32_t bias = b->config->mlp_bias;
    lathe_val h, pair[2];
    LATHE_TRY(lathe__build_norm(
        b, LATHE_OP_RMSNORM,
        lathe__build_name(b, "model.layers.", layer, ".post_attention_layernorm"), x, &h));
    LATHE_TRY(site(b, layer, ".mlp.gate_proj", bias, h, &pair[0]));
    LATHE_TRY(site(b, layer, ".mlp.up_proj", bias, h, &pair[1]));
    LATHE_TRY(lathe__build_node(b, LATHE_OP_SWIGLU, NULL, pair, 2, "mlp.swiglu", &h));
    LATHE_TRY(site(b, layer, ".mlp.down_proj", bias, h, &h));
    const lathe_val sum[2] = {h, x};
    return lathe__build_node(b, LATHE_OP_ADD, NULL, sum, 2, "mlp residual", out);
}

static lathe_status rope_const(const lathe_model_build *b, lathe_val *out)
{
    const int32_t d = b->config->head_dim;
    float *table = malloc((size_t)b->max_positions * (size_t)d * sizeof *table);
    if (table == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a RoPE table of %lld positions",
                           (long long)b->max_positions);
    lathe_rope_table(&b->config->rope, d, b->max_positions, table);
    const lathe_desc desc = {LATHE_F32, 3, {b->max_positions, 2, d / 2, 1}};
    const lathe_status status = lathe_graph_const(b->graph, "rope.table", desc, table, out);
    free(table);
    return status;
}

lathe_status lathe__llama_hidden(const lathe_model_build *b, int32_t qk_norm, lathe_val *out)
{
    lathe_val x, table, in[2] = {b->tokens, LATHE_NONE};
    lathe_graph_set_layer(b->graph, -1, LATHE_BLOCK_NONE);
    if (b->max_positions < 1)
        return lathe_error(LATHE_E_ARG, "a model of %lld positions", (long long)b->max_positions);
    LATHE_TRY(rope_const(b, &table));
    LATHE_TRY(lathe__build_param(b, &in[1], "model.embed_tokens.weight"));
    LATHE_TRY(lathe__build_node(b, LATHE_OP_EMBED, NULL, in, 2, "embed_tokens", &x));
    for (int32_t layer = 0; layer < b->config->n_layers; layer++) {
        LATHE_TRY(attention_block(b, layer, qk_norm, table, x, &x));
        LATHE_TRY(mlp_block(b, layer, x, &x));
    }
    lathe_graph_set_layer(b->graph, -1, LATHE_BLOCK_NONE);
    return lathe__build_norm(b, LATHE_OP_RMSNORM, "model.norm", x, out);
}

static lathe_status add_params(const lathe_model_config *config, lathe_params *params)
{
    return lathe__llama_params(config, 0, params);
}

static lathe_status hidden(const lathe_model_build *build, lathe_val *out)
{
    return lathe__llama_hidden(build, 0, out);
}

const lathe_family lathe__family_llama = {.model_type = "llama",
                                          .architecture = "LlamaForCausalLM",
                                          .prefix = "model.",
                                          .embedding = "model.embed_tokens.weight",
                                          .keys = keys,
                                          .read = read,
                                          .write = write,
                                          .params = add_params,
                                          .hidden = hidden};

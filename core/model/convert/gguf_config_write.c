/* Writes a model's configuration as keys of a GGUF file. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "files/gguf/gguf_config.h"
#include "model/convert/gguf_config_write.h"
#include "model/family/model_values.h"

typedef struct keys {
    const lathe_gguf_family *family;
    lathe_gguf_writer *w;
    char buffer[96];
} keys;

static void put_int(keys *k, const char *name, int64_t value)
{
    lathe_gguf_put_u32(k->w, lathe__gguf_key(k->family, name, k->buffer, sizeof k->buffer), value);
}

static void put_float(keys *k, const char *name, double value)
{
    lathe_gguf_put_float(k->w, lathe__gguf_key(k->family, name, k->buffer, sizeof k->buffer),
                         value);
}

static double number(const json_t *values, const char *key)
{
    return json_number_value(json_object_get(values, key));
}

/* llama.cpp divides the scores of Gemma by the root of the head's size, or of the width per head in
 * the largest models. */
static void put_scale(keys *k, const lathe_model_config *c, const json_t *values)
{
    const double asked = number(values, "query_pre_attn_scalar");
    const double used = c->n_layers == k->family->large_n_layers ? (double)(c->width / c->n_heads)
                                                                 : (double)c->head_dim;
    if (asked == used)
        return;
    put_float(k, "attention.scale", 1.0 / sqrt(asked));
    lathe_log(
        LATHE_LOG_WARN,
        "query_pre_attn_scalar is %g, but llama.cpp computes with %g for this model, whatever "
        "the file says: its answers will differ",
        asked, used);
}

/* The list of layers with a window, where it is not the family's usual one. A model of layers
 * without windows has no such keys, unless llama.cpp needs them. */
static void put_windows(keys *k, const lathe_model_config *c)
{
    const int is_needed = strcmp(k->family->arch, "cohere2") == 0;
    lathe_buffer list = LATHE_BUFFER_INIT;
    int32_t window = 0, is_usual = 1;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const uint8_t slides = c->layers[i].window > 0;
        window = slides ? c->layers[i].window : window;
        is_usual &= slides == ((i + 1) % k->family->window_period != 0);
        lathe_buffer_append(&list, &slides, 1);
    }
    if (window == 0 && is_needed)
        window = (int32_t)c->max_positions;
    if (window > 0)
        put_int(k, "attention.sliding_window", window);
    if (window > 0 && !is_usual)
        lathe_gguf_put_array(k->w,
                             lathe__gguf_key(k->family, "attention.sliding_window_pattern",
                                             k->buffer, sizeof k->buffer),
                             LATHE_GGUF_BOOL, c->n_layers, &list);
    lathe_buffer_fini(&list);
}

static void warn_of_windows(const lathe_model_config *c)
{
    for (int32_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].window > 0 && c->layers[i].window < c->max_positions) {
            lathe_log(LATHE_LOG_WARN,
                      "the sliding window of %d tokens is not applied by llama.cpp in a model of "
                      "type %s: its answers will differ after that many tokens",
                      (int)c->layers[i].window, c->model_type);
            return;
        }
}

static void put_gemma(keys *k, const lathe_model_config *c, const json_t *values)
{
    const double cap = number(values, "attn_logit_softcapping");
    if (cap > 0.0 && strcmp(k->family->arch, "gemma2") == 0)
        put_float(k, "attn_logit_softcapping", cap);
    else if (cap > 0.0)
        lathe_log(LATHE_LOG_WARN,
                  "attn_logit_softcapping is %g, which GGUF has no key for in a "
                  "model of type %s",
                  cap, c->model_type);
    if (c->head_softcap > 0.0)
        put_float(k, "final_logit_softcapping", c->head_softcap);
    put_scale(k, c, values);
}

static void put_factors(keys *k, const json_t *values)
{
    const char *arch = k->family->arch;
    if (strcmp(arch, "command-r") == 0 || strcmp(arch, "cohere2") == 0)
        put_float(k, "logit_scale", number(values, "logit_scale"));
    if (strcmp(arch, "granite") != 0)
        return;
    put_float(k, "attention.scale", number(values, "attention_multiplier"));
    put_float(k, "embedding_scale", number(values, "embedding_multiplier"));
    put_float(k, "residual_scale", number(values, "residual_multiplier"));
    put_float(k, "logit_scale", number(values, "logits_scaling"));
}

/* llama.cpp reads no activation and computes the family's. */
static lathe_status check_activation(const lathe_gguf_family *family, const lathe_model_config *c,
                                     const json_t *values)
{
    const char *key = family->act_key != NULL ? family->act_key : "hidden_act";
    const char *name = json_string_value(json_object_get(values, key));
    const char *usual = family->uses_xielu ? "xielu" : family->uses_gelu ? "gelu" : "silu";
    const int fits = name == NULL         ? 1
                     : family->uses_xielu ? strcmp(name, "xielu") == 0
                     : family->uses_gelu  ? strncmp(name, "gelu", 4) == 0
                                          : strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0;
    return fits ? LATHE_OK
                : lathe_error(LATHE_E_UNSUPPORTED,
                              "%s is \"%s\": a model of type %s is written as GGUF with "
                              "%s only, because llama.cpp computes no other",
                              key, name, c->model_type, usual);
}

/* llama.cpp knows by the family which layers have rotary positions. */
static lathe_status check_rotation(const lathe_gguf_family *family, const lathe_model_config *c,
                                   const json_t *values)
{
    const json_t *list = json_object_get(values, "no_rope_layers");
    const int64_t interval = json_integer_value(json_object_get(values, "no_rope_layer_interval"));
    for (int32_t i = 0; family->rope_period > 0 && i < c->n_layers; i++) {
        const int has_rope = json_array_size(list) > 0
                                 ? json_number_value(json_array_get(list, (size_t)i)) != 0.0
                                 : (i + 1) % interval != 0;
        if (has_rope != ((i + 1) % family->rope_period != 0))
            return lathe_error(LATHE_E_UNSUPPORTED,
                               "no_rope_layers: layer %d %s rotary positions: a model of type %s "
                               "is written as GGUF only if every layer but each %dth has them, "
                               "because llama.cpp computes no other",
                               (int)i, has_rope ? "has" : "has no", c->model_type,
                               (int)family->rope_period);
    }
    return LATHE_OK;
}

/* Shapes, biases and windows that llama.cpp has in other models alone. */
static lathe_status check_shape(const lathe_gguf_family *family, const lathe_model_config *c,
                                const json_t *values)
{
    if (family->needs_bias && !json_is_true(json_object_get(values, family->bias_key)))
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s is false: llama.cpp reads models of type %s with biases only",
                           family->bias_key, c->model_type);
    if (family->whole_width && (int64_t)c->n_heads * c->head_dim != c->width)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "head_dim is %d: llama.cpp reads models of type %s only with "
                           "num_attention_heads * head_dim = hidden_size",
                           (int)c->head_dim, c->model_type);
    if (family->windowed_layers == 0 || c->n_layers == family->windowed_layers ||
        json_is_null(json_object_get(values, "sliding_window")))
        return LATHE_OK;
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "sliding_window is set: llama.cpp applies windows in models of type %s with "
                       "%d layers only, and this one has %d",
                       c->model_type, (int)family->windowed_layers, (int)c->n_layers);
}

/* Settings of Falcon, MPT and Bloom with which llama.cpp does not compute. */
static lathe_status check_older(const lathe_gguf_family *family, const lathe_model_config *c,
                                const json_t *values)
{
    static const struct {
        const char *arch, *key;
        int32_t value;
    } only[] = {{"falcon", "alibi", 0},
                {"falcon", "bias", 0},
                {"falcon", "parallel_attn", 1},
                {"bloom", "apply_residual_connection_post_layernorm", 0}};
    const json_t *attention = json_object_get(values, "attn_config");
    for (size_t i = 0; i < sizeof only / sizeof only[0]; i++)
        if (strcmp(family->arch, only[i].arch) == 0 &&
            json_is_true(json_object_get(values, only[i].key)) != only[i].value)
            return lathe_error(LATHE_E_UNSUPPORTED,
                               "%s is %s: llama.cpp computes models of type %s with %s only",
                               only[i].key, only[i].value ? "false" : "true", c->model_type,
                               only[i].value ? "true" : "false");
    if (strcmp(family->arch, "mpt") == 0 &&
        json_number_value(json_object_get(attention, "softmax_scale")) > 0.0)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "attn_config.softmax_scale is set: llama.cpp computes models of type "
                           "mpt without it only");
    return LATHE_OK;
}

static int is_true(const json_t *values, const char *key)
{
    return json_is_true(json_object_get(values, key));
}

/* Routers that llama.cpp computes in one way only, and layers that all have experts. */
static lathe_status check_experts(const lathe_gguf_family *family, const lathe_model_config *c,
                                  const json_t *values)
{
    const lathe_gguf_experts *e = family->experts;
    const json_t *step = json_object_get(values, "decoder_sparse_step");
    if (e == NULL)
        return LATHE_OK;
    if ((step != NULL && json_number_value(step) != 1.0) ||
        json_array_size(json_object_get(values, "mlp_only_layers")) > 0)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "decoder_sparse_step or mlp_only_layers gives some layers no experts: a "
                           "model of type %s is written as GGUF only if all have them, because "
                           "llama.cpp computes no other",
                           c->model_type);
    if (e->norm_key != NULL && !e->grouped && is_true(values, e->norm_key) != e->norm)
        return lathe_error(
            LATHE_E_UNSUPPORTED, "%s is %s: llama.cpp computes models of type %s with %s only",
            e->norm_key, e->norm ? "false" : "true", c->model_type, e->norm ? "true" : "false");
    if (strcmp(family->arch, "olmoe") == 0 && c->n_kv_heads != c->n_heads)
        return lathe_error(
            LATHE_E_UNSUPPORTED,
            "num_key_value_heads is %d: llama.cpp reads models of type olmoe with as "
            "many key heads as query heads only",
            (int)c->n_kv_heads);
    if (e->grouped && number(values, "n_group") > 1.0 &&
        number(values, "topk_group") >= number(values, "n_group"))
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "topk_group is n_group: llama.cpp reads routers that leave groups out, "
                           "or without groups, only");
    return LATHE_OK;
}

/* Refuses what the file could not say, so that llama.cpp would compute another model. */
static lathe_status check(const lathe_gguf_family *family, const lathe_model_config *c,
                          const json_t *values)
{
    if (family->needs_head && c->tied)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "tie_word_embeddings is true: llama.cpp reads models of type %s with a "
                           "head of their own only",
                           c->model_type);
    LATHE_TRY(check_shape(family, c, values));
    LATHE_TRY(check_older(family, c, values));
    LATHE_TRY(check_experts(family, c, values));
    LATHE_TRY(check_activation(family, c, values));
    return check_rotation(family, c, values);
}

static void put_stablelm(keys *k, const json_t *values)
{
    if (strcmp(k->family->arch, "stablelm") == 0)
        lathe_gguf_put_bool(
            k->w, lathe__gguf_key(k->family, "use_parallel_residual", k->buffer, sizeof k->buffer),
            json_is_true(json_object_get(values, "use_parallel_residual")));
}

/* The bias of ALiBi and the limit of q, k and v. */
static void put_mpt(keys *k, const json_t *values)
{
    const json_t *attention = json_object_get(values, "attn_config");
    const double clip = json_number_value(json_object_get(attention, "clip_qkv"));
    const json_t *bias = json_object_get(attention, "alibi_bias_max");
    if (strcmp(k->family->arch, "mpt") != 0)
        return;
    put_float(k, "attention.max_alibi_bias", bias != NULL ? json_number_value(bias) : 8.0);
    if (clip > 0.0)
        put_float(k, "attention.clamp_kqv", clip);
}

static void put_experts(keys *k, const json_t *values)
{
    enum { SIGMOID = 2 };
    const lathe_gguf_experts *e = k->family->experts;
    if (e == NULL)
        return;
    put_int(k, "expert_count", (int64_t)number(values, e->count_key));
    put_int(k, "expert_used_count", (int64_t)number(values, "num_experts_per_tok"));
    if (e->ffn_key != NULL)
        put_int(k, "expert_feed_forward_length", (int64_t)number(values, e->ffn_key));
    if (e->shared_key != NULL)
        put_int(k, "expert_shared_feed_forward_length", (int64_t)number(values, e->shared_key));
    if (!e->grouped)
        return;
    put_int(k, "expert_gating_func", SIGMOID);
    put_int(k, "expert_group_count", (int64_t)number(values, "n_group"));
    put_int(k, "expert_group_used_count", (int64_t)number(values, "topk_group"));
    put_int(k, "expert_shared_count", (int64_t)number(values, "n_shared_experts"));
    put_int(k, "leading_dense_block_count", (int64_t)number(values, "first_k_dense_replace"));
    put_float(k, "expert_weights_scale", number(values, "routed_scaling_factor"));
    lathe_gguf_put_bool(
        k->w, lathe__gguf_key(k->family, "expert_weights_norm", k->buffer, sizeof k->buffer),
        is_true(values, e->norm_key));
}

static lathe_status write_keys(keys *k, const lathe_model_config *c, const json_t *values)
{
    put_int(k, "vocab_size", c->vocab);
    put_int(k, "context_length", c->max_positions);
    put_int(k, "embedding_length", c->width);
    put_int(k, "block_count", c->n_layers);
    put_int(k, "feed_forward_length", c->ffn);
    put_int(k, "attention.head_count", c->n_heads);
    put_int(k, "attention.head_count_kv", c->n_kv_heads);
    put_int(k, "attention.key_length", c->head_dim);
    put_int(k, "attention.value_length", c->head_dim);
    if (k->family->layer_norms)
        put_float(k, "attention.layer_norm_epsilon",
                  number(values, k->family->norm_eps_key != NULL ? k->family->norm_eps_key
                                                                 : "layer_norm_eps"));
    else
        put_float(k, "attention.layer_norm_rms_epsilon", number(values, "rms_norm_eps"));
    if (k->family->is_capped)
        put_gemma(k, c, values);
    put_factors(k, values);
    put_experts(k, values);
    put_stablelm(k, values);
    put_mpt(k, values);
    if (k->family->window_period > 0)
        put_windows(k, c);
    else if (strcmp(k->family->arch, "phi3") == 0)
        put_int(k, "attention.sliding_window",
                c->layers[0].window > 0 && c->layers[0].window < c->max_positions
                    ? c->layers[0].window
                    : 0);
    if (k->family->window_period == 0)
        warn_of_windows(c);
    return lathe__gguf_rope_write(k->family, c, k->w);
}

lathe_status lathe_gguf_config_write(const lathe_gguf_family *family,
                                     const lathe_model_config *config, lathe_gguf_writer *w)
{
    keys k = {.family = family, .w = w};
    json_t *values = json_object();
    if (values == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a configuration");
    for (int32_t i = 1; i < config->n_layers; i++)
        if (config->layers[i].n_heads != config->n_heads ||
            config->layers[i].n_kv_heads != config->n_kv_heads ||
            config->layers[i].head_dim != config->head_dim) {
            json_decref(values);
            return lathe_error(LATHE_E_UNSUPPORTED,
                               "layers with different heads cannot be written as GGUF");
        }
    lathe_status status =
        lathe_model_values_write(config->family.component->plugin, config->values, values);
    if (status == LATHE_OK)
        status = check(family, config, values);
    if (status == LATHE_OK)
        status = write_keys(&k, config, values);
    json_decref(values);
    return status;
}

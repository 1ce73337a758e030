/* Makes a config.json from the keys of a GGUF file. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "gguf/gguf_config.h"

const char *lathe__gguf_key(const lathe_gguf_family *family, const char *name, char *buffer,
                            size_t n)
{
    (void)snprintf(buffer, n, "%s.%s", family->arch, name);
    return buffer;
}

typedef struct reader {
    const lathe_gguf_family *family;
    const lathe_gguf *file;
    json_t *config;
    char key[96];
} reader;

static const char *key_of(reader *r, const char *name)
{
    return lathe__gguf_key(r->family, name, r->key, sizeof r->key);
}

static lathe_status missing(const reader *r)
{
    return lathe_error(LATHE_E_CONFIG, "%s: the key %s is missing", lathe_gguf_path(r->file),
                       r->key);
}

/* A whole number from 1 that must be there; sets it in the config. */
static lathe_status take(reader *r, const char *name, const char *key, int64_t *out)
{
    LATHE_TRY(lathe_gguf_int(r->file, key_of(r, name), 1, INT32_MAX, 0, out));
    if (*out == 0)
        return missing(r);
    json_object_set_new(r->config, key, json_integer(*out));
    return LATHE_OK;
}

static lathe_status read_heads(reader *r, int64_t width, int64_t *out_dim)
{
    int64_t heads, kv, values;
    LATHE_TRY(take(r, "attention.head_count", "num_attention_heads", &heads));
    LATHE_TRY(
        lathe_gguf_int(r->file, key_of(r, "attention.head_count_kv"), 1, INT32_MAX, heads, &kv));
    json_object_set_new(r->config, "num_key_value_heads", json_integer(kv));
    LATHE_TRY(lathe_gguf_int(r->file, key_of(r, "attention.value_length"), 1, INT32_MAX,
                             width / heads, &values));
    LATHE_TRY(lathe_gguf_int(r->file, key_of(r, "attention.key_length"), 1, INT32_MAX,
                             width / heads, out_dim));
    if (*out_dim < 1)
        return lathe_error(LATHE_E_CONFIG, "%s: an embedding of %lld for %lld heads",
                           lathe_gguf_path(r->file), (long long)width, (long long)heads);
    if (values != *out_dim)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: keys have %lld channels and values %lld; expected as many",
                           lathe_gguf_path(r->file), (long long)*out_dim, (long long)values);
    if (strcmp(r->family->arch, "phi3") != 0 && strcmp(r->family->arch, "olmo2") != 0)
        json_object_set_new(r->config, "head_dim", json_integer(*out_dim));
    return LATHE_OK;
}

static lathe_status read_epsilon(reader *r)
{
    double x;
    LATHE_TRY(lathe_gguf_float(r->file, key_of(r, "attention.layer_norm_rms_epsilon"), 0.0, &x));
    if (x <= 0.0)
        return missing(r);
    json_object_set_new(r->config, "rms_norm_eps", json_real(lathe__gguf_short_float(x)));
    return LATHE_OK;
}

static lathe_status refuse_experts(reader *r)
{
    int64_t n;
    LATHE_TRY(lathe_gguf_int(r->file, key_of(r, "expert_count"), 0, INT32_MAX, 0, &n));
    if (n == 0)
        return LATHE_OK;
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "%s: the model has %lld experts; Lathe reads models without experts",
                       lathe_gguf_path(r->file), (long long)n);
}

/* Whether the first layer has the tensor: biases have no key. */
static void set_by_tensor(const reader *r, const char *tensor, const char *key)
{
    json_object_set_new(r->config, key, json_boolean(lathe_gguf_find(r->file, tensor) != NULL));
}

/* ---- Gemma ---- */

/* 1 if the layer has a window: by a list, or every layer but each period-th. */
static lathe_status read_pattern(reader *r, int64_t n_layers, json_t *types)
{
    const char *key = key_of(r, "attention.sliding_window_pattern");
    const lathe_gguf_entry *v = lathe_gguf_value(r->file, key), *list = NULL;
    int64_t period = r->family->window_period;
    if (v != NULL && v->is_array) {
        LATHE_TRY(lathe_gguf_array(r->file, key, LATHE_GGUF_BOOL, &list));
        if (list->n != n_layers)
            return lathe_error(LATHE_E_CONFIG, "%s: the key %s has %lld elements for %lld layers",
                               lathe_gguf_path(r->file), key, (long long)list->n,
                               (long long)n_layers);
    } else {
        LATHE_TRY(lathe_gguf_int(r->file, key, 1, INT32_MAX, period, &period));
    }
    for (int64_t i = 0; i < n_layers; i++) {
        const int slides = list != NULL ? list->data[i] : (i + 1) % period != 0;
        json_array_append_new(types, json_string(slides ? "sliding_attention" : "full_attention"));
    }
    return LATHE_OK;
}

static lathe_status read_windows(reader *r, int64_t n_layers)
{
    json_t *types = json_array();
    int64_t window;
    if (types == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a configuration");
    json_object_set_new(r->config, "layer_types", types);
    LATHE_TRY(lathe_gguf_int(r->file, key_of(r, "attention.sliding_window"), 0, INT32_MAX,
                             strcmp(r->family->arch, "gemma2") == 0 ? 4096 : 0, &window));
    if (window > 0) {
        json_object_set_new(r->config, "sliding_window", json_integer(window));
        return read_pattern(r, n_layers, types);
    }
    for (int64_t i = 0; i < n_layers; i++)
        json_array_append_new(types, json_string("full_attention"));
    return LATHE_OK;
}

static lathe_status read_gemma(reader *r, int64_t n_layers, int64_t width, int64_t head_dim)
{
    double cap, final, scale;
    LATHE_TRY(lathe_gguf_float(r->file, key_of(r, "attn_logit_softcapping"), 0.0, &cap));
    LATHE_TRY(lathe_gguf_float(r->file, key_of(r, "final_logit_softcapping"), 0.0, &final));
    LATHE_TRY(lathe_gguf_float(r->file, key_of(r, "attention.scale"), 0.0, &scale));
    json_object_set_new(r->config, "attn_logit_softcapping",
                        cap > 0.0 ? json_real(lathe__gguf_short_float(cap)) : json_null());
    json_object_set_new(r->config, "final_logit_softcapping",
                        final > 0.0 ? json_real(lathe__gguf_short_float(final)) : json_null());
    const int64_t heads = json_integer_value(json_object_get(r->config, "num_attention_heads"));
    int64_t scalar = n_layers == r->family->large_n_layers ? width / heads : head_dim;
    if (scale > 0.0)
        scalar = (int64_t)llround(1.0 / (scale * scale));
    json_object_set_new(r->config, "query_pre_attn_scalar", json_integer(scalar));
    json_object_set_new(r->config, "hidden_activation", json_string("gelu_pytorch_tanh"));
    return read_windows(r, n_layers);
}

/* ---- the others ---- */

static lathe_status read_others(reader *r)
{
    int64_t window;
    const char *arch = r->family->arch;
    json_object_set_new(r->config, "hidden_act", json_string("silu"));
    if (strcmp(arch, "llama") == 0 || strcmp(arch, "qwen3") == 0 || strcmp(arch, "olmo2") == 0)
        set_by_tensor(r, "blk.0.attn_q.bias", "attention_bias");
    if (strcmp(arch, "llama") == 0)
        set_by_tensor(r, "blk.0.ffn_up.bias", "mlp_bias");
    LATHE_TRY(
        lathe_gguf_int(r->file, key_of(r, "attention.sliding_window"), 0, INT32_MAX, 0, &window));
    if (strcmp(arch, "phi3") == 0)
        json_object_set_new(r->config, "sliding_window",
                            window > 0 ? json_integer(window) : json_null());
    else if (window > 0)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: the key %s is %lld; Lathe reads models of this architecture "
                           "without a window",
                           lathe_gguf_path(r->file), r->key, (long long)window);
    return LATHE_OK;
}

static lathe_status read_all(reader *r)
{
    int64_t width, n_layers, unused, head_dim;
    const lathe_gguf_tensor *embedding = lathe_gguf_find(r->file, "token_embd.weight");
    LATHE_TRY(refuse_experts(r));
    LATHE_TRY(take(r, "embedding_length", "hidden_size", &width));
    LATHE_TRY(take(r, "block_count", "num_hidden_layers", &n_layers));
    if (n_layers > lathe_gguf_count(r->file))
        return lathe_error(LATHE_E_CONFIG, "%s: the key %s is %lld, but the file has %lld tensors",
                           lathe_gguf_path(r->file), r->key, (long long)n_layers,
                           (long long)lathe_gguf_count(r->file));
    LATHE_TRY(take(r, "feed_forward_length", "intermediate_size", &unused));
    LATHE_TRY(take(r, "context_length", "max_position_embeddings", &unused));
    LATHE_TRY(read_heads(r, width, &head_dim));
    LATHE_TRY(read_epsilon(r));
    if (embedding == NULL)
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no tensor token_embd.weight",
                           lathe_gguf_path(r->file));
    json_object_set_new(r->config, "vocab_size", json_integer(embedding->rows));
    json_object_set_new(r->config, "tie_word_embeddings",
                        json_boolean(lathe_gguf_find(r->file, "output.weight") == NULL));
    if (r->family->window_period > 0)
        LATHE_TRY(read_gemma(r, n_layers, width, head_dim));
    else
        LATHE_TRY(read_others(r));
    return lathe__gguf_rope_read(r->family, r->file, head_dim, r->config);
}

lathe_status lathe_gguf_config_read(const lathe_gguf_family *family, const lathe_gguf *file,
                                    json_t **out)
{
    *out = NULL;
    json_t *list = json_pack("[s]", family->architecture);
    reader r = {.family = family, .file = file, .config = json_object()};
    if (r.config == NULL || list == NULL) {
        json_decref(list);
        json_decref(r.config);
        return lathe_error(LATHE_E_NOMEM, "no memory for a configuration");
    }
    json_object_set_new(r.config, "architectures", list);
    json_object_set_new(r.config, "model_type", json_string(family->model_type));
    const lathe_status status = read_all(&r);
    if (status == LATHE_OK)
        *out = r.config;
    else
        json_decref(r.config);
    return status;
}

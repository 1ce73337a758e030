/* Makes a config.json from the keys of a GGUF file. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/log_once.h"
#include "files/gguf/gguf_config.h"

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
    if (key[0] != '\0')
        json_object_set_new(r->config, key, json_integer(*out));
    return LATHE_OK;
}

static const char *name_of(const char *own, const char *usual)
{
    return own != NULL ? own : usual;
}

/* The architecture of a Falcon, by its heads and norms. */
static void set_falcon(reader *r, int64_t heads, int64_t kv)
{
    const int is_new = r->family->two_norms || (kv != 1 && kv != heads);
    json_object_set_new(r->config, "new_decoder_architecture", json_boolean(is_new));
    json_object_set_new(r->config, "multi_query", json_boolean(kv == 1));
    json_object_set_new(r->config, "parallel_attn", json_true());
    json_object_set_new(r->config, "alibi", json_false());
    json_object_set_new(r->config, "bias", json_false());
    if (!is_new)
        return;
    json_object_set_new(r->config, "num_kv_heads", json_integer(kv));
    json_object_set_new(r->config, "num_ln_in_parallel_attn",
                        json_integer(r->family->two_norms ? 2 : 1));
}

/* attn_config of MPT. */
static lathe_status read_mpt(reader *r)
{
    double clip, bias;
    LATHE_TRY(lathe_gguf_float(r->file, key_of(r, "attention.clamp_kqv"), 0.0, &clip));
    LATHE_TRY(lathe_gguf_float(r->file, key_of(r, "attention.max_alibi_bias"), 0.0, &bias));
    if (!(bias > 0.0) || bias != floor(bias))
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: the key %s is %g; Lathe reads models of this architecture with "
                           "ALiBi only, and a whole number",
                           lathe_gguf_path(r->file), r->key, bias);
    json_t *table = json_pack("{s:b, s:I}", "alibi", 1, "alibi_bias_max", (json_int_t)bias);
    if (table == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a configuration");
    if (clip > 0.0)
        json_object_set_new(table, "clip_qkv", json_real(lathe__gguf_short_float(clip)));
    json_object_set_new(r->config, "attn_config", table);
    return LATHE_OK;
}

static lathe_status read_heads(reader *r, int64_t width, int64_t *out_dim)
{
    int64_t heads, kv, values;
    LATHE_TRY(take(r, "attention.head_count", "num_attention_heads", &heads));
    LATHE_TRY(
        lathe_gguf_int(r->file, key_of(r, "attention.head_count_kv"), 1, INT32_MAX, heads, &kv));
    if (r->family->kv_key == NULL)
        json_object_set_new(r->config, "num_key_value_heads", json_integer(kv));
    else if (strcmp(r->family->arch, "falcon") == 0)
        set_falcon(r, heads, kv);
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
    if (!r->family->no_head_dim)
        json_object_set_new(r->config, "head_dim", json_integer(*out_dim));
    return LATHE_OK;
}

static lathe_status read_epsilon(reader *r)
{
    double x;
    const char *key = r->family->layer_norms ? "attention.layer_norm_epsilon"
                                             : "attention.layer_norm_rms_epsilon";
    LATHE_TRY(lathe_gguf_float(r->file, key_of(r, key), 0.0, &x));
    if (x <= 0.0)
        return missing(r);
    const char *name = !r->family->layer_norms           ? "rms_norm_eps"
                       : r->family->norm_eps_key != NULL ? r->family->norm_eps_key
                                                         : "layer_norm_eps";
    json_object_set_new(r->config, name, json_real(lathe__gguf_short_float(x)));
    return LATHE_OK;
}

/* Whether the first layer has the tensor: biases have no key. */
static void set_by_tensor(const reader *r, const char *tensor, const char *key)
{
    json_object_set_new(r->config, key, json_boolean(lathe_gguf_find(r->file, tensor) != NULL));
}

static lathe_status refuse_experts(reader *r)
{
    int64_t n;
    LATHE_TRY(lathe_gguf_int(r->file, key_of(r, "expert_count"), 0, INT32_MAX, 0, &n));
    if (n == 0)
        return LATHE_OK;
    return lathe_error(LATHE_E_UNSUPPORTED,
                       "%s: the model has %lld experts; Lathe reads models of this architecture "
                       "without experts",
                       lathe_gguf_path(r->file), (long long)n);
}

/* A whole number from 0, which may be missing. */
static lathe_status take_from_zero(reader *r, const char *name, int64_t fallback, const char *key)
{
    int64_t n;
    LATHE_TRY(lathe_gguf_int(r->file, key_of(r, name), 0, INT32_MAX, fallback, &n));
    json_object_set_new(r->config, key, json_integer(n));
    return LATHE_OK;
}

/* The router of GLM-4.5. */
static lathe_status read_grouped(reader *r)
{
    enum { SIGMOID = 2 };
    int64_t gating;
    int32_t norm;
    double scale;
    LATHE_TRY(
        lathe_gguf_int(r->file, key_of(r, "expert_gating_func"), 0, INT32_MAX, SIGMOID, &gating));
    if (gating != SIGMOID && gating != 0)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: the key %s is %lld; Lathe reads routers of this architecture with "
                           "2, the sigmoid, only",
                           lathe_gguf_path(r->file), r->key, (long long)gating);
    LATHE_TRY(lathe_gguf_bool(r->file, key_of(r, "expert_weights_norm"), 0, &norm));
    LATHE_TRY(lathe_gguf_float(r->file, key_of(r, "expert_weights_scale"), 0.0, &scale));
    json_object_set_new(r->config, "norm_topk_prob", json_boolean(norm));
    json_object_set_new(r->config, "routed_scaling_factor",
                        json_real(scale > 0.0 ? lathe__gguf_short_float(scale) : 1.0));
    LATHE_TRY(take_from_zero(r, "expert_shared_count", 1, "n_shared_experts"));
    LATHE_TRY(take_from_zero(r, "leading_dense_block_count", 0, "first_k_dense_replace"));
    LATHE_TRY(take_from_zero(r, "expert_group_count", 1, "n_group"));
    LATHE_TRY(take_from_zero(r, "expert_group_used_count", 1, "topk_group"));
    json_object_set_new(r->config, "num_nextn_predict_layers", json_integer(0));
    set_by_tensor(r, "blk.0.attn_q_norm.weight", "use_qk_norm");
    return LATHE_OK;
}

static lathe_status read_experts(reader *r)
{
    const lathe_gguf_experts *e = r->family->experts;
    int64_t n;
    if (e == NULL)
        return refuse_experts(r);
    LATHE_TRY(take(r, "expert_count", e->count_key, &n));
    LATHE_TRY(take(r, "expert_used_count", "num_experts_per_tok", &n));
    if (e->ffn_key != NULL)
        LATHE_TRY(take(r, "expert_feed_forward_length", e->ffn_key, &n));
    if (e->shared_key != NULL)
        LATHE_TRY(take(r, "expert_shared_feed_forward_length", e->shared_key, &n));
    if (e->norm_key != NULL && !e->grouped)
        json_object_set_new(r->config, e->norm_key, json_boolean(e->norm));
    return e->grouped ? read_grouped(r) : LATHE_OK;
}

/* ---- windows ---- */

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
    if (r->family->windowed_layers > 0)
        json_object_set_new(r->config, "sliding_window", json_null());
    return LATHE_OK;
}

/* ---- Gemma 2 and 3 ---- */

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
    return LATHE_OK;
}

/* ---- the others ---- */

/* A factor that the architecture has; 0 where the file leaves it out. */
static lathe_status take_factor(reader *r, const char *name, const char *key)
{
    double x;
    LATHE_TRY(lathe_gguf_float(r->file, key_of(r, name), 0.0, &x));
    if (x > 0.0)
        json_object_set_new(r->config, key, json_real(lathe__gguf_short_float(x)));
    return LATHE_OK;
}

static lathe_status read_factors(reader *r)
{
    const char *arch = r->family->arch;
    if (strcmp(arch, "command-r") == 0 || strcmp(arch, "cohere2") == 0)
        return take_factor(r, "logit_scale", "logit_scale");
    if (strcmp(arch, "granite") != 0)
        return LATHE_OK;
    LATHE_TRY(take_factor(r, "attention.scale", "attention_multiplier"));
    if (json_object_get(r->config, "attention_multiplier") == NULL) /* llama.cpp's default */
        json_object_set_new(
            r->config, "attention_multiplier",
            json_real(1.0 / sqrt(json_number_value(json_object_get(r->config, "head_dim")))));
    LATHE_TRY(take_factor(r, "embedding_scale", "embedding_multiplier"));
    LATHE_TRY(take_factor(r, "residual_scale", "residual_multiplier"));
    return take_factor(r, "logit_scale", "logits_scaling");
}

/* Refuses a window where the architecture has none. Phi-3 has one for all layers. */
static lathe_status read_one_window(reader *r)
{
    int64_t window;
    LATHE_TRY(
        lathe_gguf_int(r->file, key_of(r, "attention.sliding_window"), 0, INT32_MAX, 0, &window));
    if (strcmp(r->family->arch, "phi3") == 0)
        json_object_set_new(r->config, "sliding_window",
                            window > 0 ? json_integer(window) : json_null());
    else if (window > 0)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: the key %s is %lld; Lathe reads models of this architecture "
                           "without a window",
                           lathe_gguf_path(r->file), r->key, (long long)window);
    return LATHE_OK;
}

static lathe_status read_others(reader *r)
{
    const lathe_gguf_family *f = r->family;
    if (strcmp(f->arch, "mpt") == 0)
        LATHE_TRY(read_mpt(r));
    if (f->act_key == NULL)
        json_object_set_new(r->config, "hidden_act",
                            json_string(f->uses_xielu  ? "xielu"
                                        : f->uses_gelu ? "gelu_pytorch_tanh"
                                                       : "silu"));
    if (f->bias_key != NULL)
        set_by_tensor(r, "blk.0.attn_q.bias", f->bias_key);
    if (f->out_bias_key != NULL)
        set_by_tensor(r, "blk.0.attn_output.bias", f->out_bias_key);
    if (strcmp(f->arch, "stablelm") == 0) { /* as llama.cpp: by the tensors alone */
        set_by_tensor(r, "blk.0.attn_q_norm.weight", "qk_layernorm");
        json_object_set_new(
            r->config, "use_parallel_residual",
            json_boolean(lathe_gguf_find(r->file, "blk.0.ffn_norm.weight") == NULL));
    }
    if (f->mlp_bias_key != NULL)
        set_by_tensor(r, "blk.0.ffn_up.bias", f->mlp_bias_key);
    return read_factors(r);
}

/* Layers of multi-token prediction are the last of block_count. */
static lathe_status leave_out_predicted(reader *r, int64_t *io_n_layers)
{
    int64_t n;
    LATHE_TRY(lathe_gguf_int(r->file, key_of(r, "nextn_predict_layers"), 0, INT32_MAX, 0, &n));
    if (n == 0)
        return LATHE_OK;
    if (r->family->experts == NULL || n >= *io_n_layers)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: the key %s is %lld; Lathe reads no such layers of this model",
                           lathe_gguf_path(r->file), r->key, (long long)n);
    *io_n_layers -= n;
    json_object_set_new(r->config, "num_hidden_layers", json_integer(*io_n_layers));
    return LATHE_OK;
}

static lathe_status read_all(reader *r)
{
    const lathe_gguf_family *f = r->family;
    int64_t width, n_layers, unused, ffn, head_dim;
    const lathe_gguf_tensor *embedding = lathe_gguf_find(r->file, "token_embd.weight");
    LATHE_TRY(read_experts(r));
    LATHE_TRY(take(r, "embedding_length", "hidden_size", &width));
    LATHE_TRY(take(r, "block_count", "num_hidden_layers", &n_layers));
    if (n_layers > lathe_gguf_count(r->file))
        return lathe_error(LATHE_E_CONFIG, "%s: the key %s is %lld, but the file has %lld tensors",
                           lathe_gguf_path(r->file), r->key, (long long)n_layers,
                           (long long)lathe_gguf_count(r->file));
    LATHE_TRY(leave_out_predicted(r, &n_layers));
    LATHE_TRY(take(r, "feed_forward_length", name_of(f->ffn_key, "intermediate_size"), &ffn));
    LATHE_TRY(
        take(r, "context_length", name_of(f->positions_key, "max_position_embeddings"), &unused));
    if (name_of(f->ffn_key, "")[0] == '\0' && f->ffn_key != NULL && ffn != 4 * width)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: the key %s.feed_forward_length is %lld; expected 4 times "
                           "embedding_length",
                           lathe_gguf_path(r->file), f->arch, (long long)ffn);
    LATHE_TRY(read_heads(r, width, &head_dim));
    LATHE_TRY(read_epsilon(r));
    if (embedding == NULL)
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no tensor token_embd.weight",
                           lathe_gguf_path(r->file));
    json_object_set_new(r->config, "vocab_size", json_integer(embedding->rows));
    json_object_set_new(r->config, "tie_word_embeddings",
                        json_boolean(lathe_gguf_find(r->file, "output.weight") == NULL));
    LATHE_TRY(r->family->is_capped ? read_gemma(r, n_layers, width, head_dim) : read_others(r));
    LATHE_TRY(r->family->window_period > 0 ? read_windows(r, n_layers) : read_one_window(r));
    return f->no_rope ? LATHE_OK : lathe__gguf_rope_read(r->family, r->file, head_dim, r->config);
}

/* ---- keys that nothing reads ---- */

/* Keys that describe the file, that llama.cpp does not read either, or that the tensors say, too;
 * and those of xIELU, which are read with the tensors. */
static int is_harmless(const char *name)
{
    static const char *const names[] = {"vocab_size", "tensor_data_layout", "use_parallel_residual",
                                        "rope.scaling.finetuned", "attention.causal"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return 1;
    return strncmp(name, "xielu.", 6) == 0;
}

/* A value that switches nothing on: 0, false, an empty text or list. */
static int is_off(const lathe_gguf_entry *v)
{
    for (const uint8_t *at = v->data; at < v->end; at++)
        if (*at != 0)
            return 0;
    return 1;
}

/* attention.causal is on by itself: there it is `false` that would have an effect. */
static int is_causal(const char *name, const lathe_gguf_entry *v)
{
    return strcmp(name, "attention.causal") != 0 || !is_off(v);
}

/* Names the keys of the architecture that are set and that nothing has read: another program could
 * compute something else of the file. */
static void tell_unread(const reader *r)
{
    const size_t n = strlen(r->family->arch);
    lathe_buffer list = LATHE_BUFFER_INIT;
    for (int64_t i = 0; i < lathe_gguf_value_count(r->file); i++) {
        const lathe_gguf_entry *v = lathe_gguf_value_at(r->file, i);
        if (v->is_read || strncmp(v->key, r->family->arch, n) != 0 || v->key[n] != '.')
            continue;
        const char *name = v->key + n + 1;
        const int is_told = is_harmless(name) ? !is_causal(name, v) : !is_off(v);
        if (is_told)
            lathe_buffer_printf(&list, "%s%s", list.len > 0 ? ", " : "", v->key);
    }
    lathe_buffer text = LATHE_BUFFER_INIT;
    lathe_buffer_printf(&text, "%s: keys that nothing reads: %s", lathe_gguf_path(r->file),
                        list.len > 0 ? list.data : "");
    if (list.len > 0 && list.status == LATHE_OK && text.status == LATHE_OK)
        lathe_log_once(LATHE_LOG_WARN, text.data);
    lathe_buffer_fini(&list);
    lathe_buffer_fini(&text);
}

lathe_status lathe_gguf_config_read(const lathe_gguf_family *family, const lathe_gguf *file,
                                    json_t **out)
{
    const lathe_gguf_family *windowed = lathe_gguf_family_windowed(family);
    char key[96];
    int64_t window = 0;
    *out = NULL;
    if (windowed != NULL)
        LATHE_TRY(lathe_gguf_int(
            file, lathe__gguf_key(family, "attention.sliding_window", key, sizeof key), 0,
            INT32_MAX, 0, &window));
    family = window > 0 ? windowed : family;
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
    if (status != LATHE_OK) {
        json_decref(r.config);
        return status;
    }
    tell_unread(&r);
    *out = r.config;
    return LATHE_OK;
}

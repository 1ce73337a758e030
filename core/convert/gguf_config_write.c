/* Writes a model's configuration as keys of a GGUF file. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "convert/gguf_config_write.h"
#include "gguf/gguf_config.h"
#include "model/model_values.h"

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

/* The list of layers with a window, where it is not the family's usual one. */
static void put_windows(keys *k, const lathe_model_config *c)
{
    lathe_buffer list = LATHE_BUFFER_INIT;
    int32_t window = 0, is_usual = 1;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const uint8_t slides = c->layers[i].window > 0;
        window = slides ? c->layers[i].window : window;
        is_usual &= slides == ((i + 1) % k->family->window_period != 0);
        lathe_buffer_append(&list, &slides, 1);
    }
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
    put_windows(k, c);
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
    put_float(k, "attention.layer_norm_rms_epsilon", number(values, "rms_norm_eps"));
    if (k->family->window_period > 0)
        put_gemma(k, c, values);
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
        status = write_keys(&k, config, values);
    json_decref(values);
    return status;
}

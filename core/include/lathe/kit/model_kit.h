/* Helpers for the keys of a model family: look-up by name, completion, error messages with the
 * value, and the schema fields that most families share. lathe/kit/decoder.h uses them. */
#ifndef LATHE_KIT_MODEL_KIT_H
#define LATHE_KIT_MODEL_KIT_H

#include <stdio.h>
#include <string.h>

#include "../model.h"

/** A model's values with their schema. */
typedef struct lathe_keys {
    const lathe_host *host;
    const lathe_field *fields; /* [n] */
    lathe_value *values;       /* [n], the instance's own */
    int32_t n;
} lathe_keys;

/** The value of a key; NULL when the schema has no such key. */
static inline lathe_value *lathe_key(const lathe_keys *k, const char *key)
{
    for (int32_t i = 0; i < k->n; i++)
        if (strcmp(k->fields[i].key, key) == 0)
            return &k->values[i];
    return NULL;
}

static inline int lathe_key_is_set(const lathe_keys *k, const char *key)
{
    const lathe_value *v = lathe_key(k, key);
    return v != NULL && v->is_set;
}

/** BOOL or INT; 0 when unset. */
static inline int64_t lathe_key_int(const lathe_keys *k, const char *key)
{
    const lathe_value *v = lathe_key(k, key);
    return v != NULL && v->is_set ? v->i : 0;
}

/** FLOAT or INT; 0 when unset. */
static inline double lathe_key_float(const lathe_keys *k, const char *key)
{
    const lathe_value *v = lathe_key(k, key);
    return v != NULL && v->is_set ? v->f : 0.0;
}

/** Sets an INT key to the given value if it is unset, and returns the key's value. */
static inline int64_t lathe_key_fill(const lathe_keys *k, const char *key, int64_t value)
{
    lathe_value *v = lathe_key(k, key);
    if (v == NULL)
        return value;
    if (!v->is_set) {
        v->is_set = 1;
        v->i = value;
        v->f = (double)value;
    }
    return v->i;
}

/** Writes the value as JSON, for messages. */
static inline void lathe_key_text(const lathe_keys *k, const char *key, char *out, size_t bytes)
{
    const lathe_value *v = lathe_key(k, key);
    if (v == NULL || !v->is_set)
        (void)snprintf(out, bytes, "unset");
    else if (v->type == LATHE_T_BOOL)
        (void)snprintf(out, bytes, "%s", v->i ? "true" : "false");
    else if (v->type == LATHE_T_INT)
        (void)snprintf(out, bytes, "%lld", (long long)v->i);
    else if (v->type == LATHE_T_FLOAT)
        (void)snprintf(out, bytes, "%.10g", v->f);
    else if (v->type == LATHE_T_STRING)
        (void)snprintf(out, bytes, "\"%s\"", v->s);
    else if (v->type != LATHE_T_STRING_LIST)
        (void)snprintf(out, bytes, "set");
    else {
        size_t at = (size_t)snprintf(out, bytes, "[");
        for (int64_t i = 0; i < v->n && at < bytes; i++)
            at += (size_t)snprintf(out + at, bytes - at, "%s\"%s\"", i > 0 ? "," : "", v->strs[i]);
        if (at < bytes)
            (void)snprintf(out + at, bytes - at, "]");
    }
}

/** LATHE_E_CONFIG: "num_key_value_heads is 3; it must divide num_attention_heads". */
static inline lathe_status lathe_key_refuse(const lathe_keys *k, const char *key, const char *why)
{
    char seen[200];
    lathe_key_text(k, key, seen, sizeof seen);
    return lathe_fail(k->host, LATHE_E_CONFIG, "%s is %s; %s", key, seen, why);
}

/** Refuses a key whose value differs from the only supported one. */
static inline lathe_status lathe_key_only(const lathe_keys *k, const char *key, double value,
                                          const char *why)
{
    const lathe_value *v = lathe_key(k, key);
    const double seen = v == NULL || !v->is_set    ? value
                        : v->type == LATHE_T_FLOAT ? v->f
                                                   : (double)v->i;
    return seen == value ? LATHE_OK : lathe_key_refuse(k, key, why);
}

/** Checks that layer_types, if set, names one of `types` ("a|b") for every layer. */
static inline lathe_status lathe_layer_types_check(const lathe_keys *k, int64_t n_layers,
                                                   const char *types, const char *why)
{
    const lathe_value *v = lathe_key(k, "layer_types");
    if (v == NULL || !v->is_set)
        return LATHE_OK;
    if (v->n != n_layers)
        return lathe_key_refuse(k, "layer_types", "expected one name for each layer");
    for (int64_t i = 0; i < v->n; i++) {
        const char *at = types;
        size_t n = strcspn(at, "|");
        while (strlen(v->strs[i]) != n || memcmp(v->strs[i], at, n) != 0) {
            if (at[n] == '\0')
                return lathe_key_refuse(k, "layer_types", why);
            at += n + 1;
            n = strcspn(at, "|");
        }
    }
    return LATHE_OK;
}

/** True if layer_types gives this type for the layer; `def` if it is unset. */
static inline int lathe_layer_is(const lathe_keys *k, int64_t layer, const char *type, int def)
{
    const lathe_value *v = lathe_key(k, "layer_types");
    if (v == NULL || !v->is_set || layer >= v->n)
        return def;
    return strcmp(v->strs[layer], type) == 0;
}

/* ---- fields of most families ---- */

#define LATHE_POSITIVE(key, def, hi, doc)                                                          \
    {                                                                                              \
        key, LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, def, 0.0, hi, NULL, "1", doc                \
    }
#define LATHE_REQUIRED_INT(key, lo, hi, unit, doc)                                                 \
    {                                                                                              \
        key, LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, lo, hi, NULL, unit, doc                      \
    }
#define LATHE_FIELD_TABLE(key, doc)                                                                \
    {                                                                                              \
        key, LATHE_T_TABLE, 0, NULL, LATHE_NO_RANGE, NULL, NULL, doc                               \
    }
#define LATHE_FIELD_STRINGS(key, doc)                                                              \
    {                                                                                              \
        key, LATHE_T_STRING_LIST, 0, NULL, LATHE_NO_RANGE, NULL, NULL, doc                         \
    }

#define LATHE_ANY_POSITIONS 2147483647.0

/** sliding_window; null switches it off. */
#define LATHE_WINDOW_FIELD(def, doc)                                                               \
    {                                                                                              \
        "sliding_window", LATHE_T_INT, LATHE_FIELD_NULLABLE, def, 1, LATHE_ANY_POSITIONS, NULL,    \
            "tokens", doc                                                                          \
    }

/** model_type (types: "qwen2|qwen3"), vocab_size, tie_word_embeddings (tied: "true"),
 *  initializer_range. */
#define LATHE_MODEL_FIELDS(types, tied)                                                            \
    LATHE_FIELD_STRING("model_type", NULL, types, "architecture of the family"),                   \
        LATHE_REQUIRED_INT("vocab_size", 1, 2147483647.0, "tokens",                                \
                           "size of the vocabulary; for a new model the tokenizer's, if unset"),   \
        LATHE_FIELD_BOOL("tie_word_embeddings", tied,                                              \
                         "the output head shares the token embedding"),                            \
        LATHE_FIELD_FLOAT("initializer_range", "0.02", 0.0, 10.0, "1",                             \
                          "standard deviation of the initial weights")

/** Shape of a decoder with grouped attention. positions: default of max_position_embeddings, or
 *  NULL. */
#define LATHE_DECODER_FIELDS(positions)                                                            \
    LATHE_REQUIRED_INT("hidden_size", 1, 1048576.0, "channels", "width of the residual stream"),   \
        LATHE_REQUIRED_INT("intermediate_size", 1, 16777216.0, "channels",                         \
                           "width inside the MLP"),                                                \
        LATHE_REQUIRED_INT("num_hidden_layers", 1, 10000.0, "layers", "number of layers"),         \
        LATHE_REQUIRED_INT("num_attention_heads", 1, 65536.0, "heads", "query heads"),             \
        LATHE_FIELD_INT("num_key_value_heads", NULL, 1, 65536.0, "heads",                          \
                        "key and value heads; unset: as many as query heads"),                     \
        LATHE_FIELD_INT("head_dim", NULL, 2, 1024.0, "channels",                                   \
                        "size of a head; unset: hidden_size / num_attention_heads"),               \
        LATHE_FIELD_INT("max_position_embeddings", positions, 1, LATHE_ANY_POSITIONS, "tokens",    \
                        "longest sequence"),                                                       \
        LATHE_FIELD_FLOAT("attention_dropout", "0.0", 0.0, 1.0, "1",                               \
                          "dropout of the attention weights; training applies none")

/** Keys of rotary positions, which the core reads for describe()'s ropes. */
#define LATHE_ROPE_FIELDS(theta)                                                                   \
    LATHE_POSITIVE("rope_theta", theta, 1e18, "base of the rotary frequencies"),                   \
        LATHE_FIELD_TABLE("rope_scaling", "RoPE scaling: rope_type, factor, ..."),                 \
        LATHE_FIELD_TABLE("rope_parameters",                                                       \
                          "the newer form of rope_scaling, which holds rope_theta too")

#endif

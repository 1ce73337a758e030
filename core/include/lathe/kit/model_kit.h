/* Helpers for the keys of a model family: look-up by name, completion, error messages with the
 * value. model_fields.h has the schema fields that most families share. lathe/kit/decoder.h uses
 * both. */
#ifndef LATHE_KIT_MODEL_KIT_H
#define LATHE_KIT_MODEL_KIT_H

#include <stdio.h>
#include <string.h>

#include "../model.h"
#include "model_fields.h"

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

/** True if a STRING key is set to this text. */
static inline int lathe_key_is(const lathe_keys *k, const char *key, const char *text)
{
    const lathe_value *v = lathe_key(k, key);
    return v != NULL && v->is_set && strcmp(v->s, text) == 0;
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
    return lathe_fail_at(k->host, LATHE_E_CONFIG, key, "%s is %s; %s", key, seen, why);
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

/* Activations of an MLP. */
enum {
    LATHE_ACT_SILU = 0,
    LATHE_ACT_GELU_TANH = 1,
    LATHE_ACT_GELU = 2,
    LATHE_ACT_RELU = 3,
    LATHE_ACT_RELU2 = 4,      /* the square of RELU */
    LATHE_ACT_RELU6 = 5,      /* RELU, at most 6 */
    LATHE_ACT_QUICK_GELU = 6, /* x sigmoid(1.702 x) */
    LATHE_ACT_TANH = 7,
    LATHE_ACT_XIELU = 8 /* with numbers of its own in each layer; no gate */
};

/** The activation that a key names; the choices of its field are names of LATHE_ACTIVATIONS. */
static inline int32_t lathe_key_activation(const lathe_keys *k, const char *key)
{
    const lathe_value *v = lathe_key(k, key);
    const char *name = v != NULL && v->is_set ? v->s : "silu";
    return strcmp(name, "gelu") == 0         ? LATHE_ACT_GELU
           : strncmp(name, "gelu_", 5) == 0  ? LATHE_ACT_GELU_TANH
           : strcmp(name, "relu") == 0       ? LATHE_ACT_RELU
           : strcmp(name, "relu2") == 0      ? LATHE_ACT_RELU2
           : strcmp(name, "relu6") == 0      ? LATHE_ACT_RELU6
           : strcmp(name, "quick_gelu") == 0 ? LATHE_ACT_QUICK_GELU
           : strcmp(name, "tanh") == 0       ? LATHE_ACT_TANH
           : strcmp(name, "xielu") == 0      ? LATHE_ACT_XIELU
                                             : LATHE_ACT_SILU;
}

#endif

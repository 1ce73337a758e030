/* Checked access to the keys of a config.json. */
#include "model/config_reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

/* The value of a key; NULL for absent and null alike. */
static json_t *value_of(const lathe_config_reader *r, const char *key)
{
    json_t *value = json_object_get(r->object, key);
    return json_is_null(value) ? NULL : value;
}

void lathe__config_refuse(lathe_config_reader *r, const char *key, const char *why)
{
    if (r->status != LATHE_OK)
        return;
    char *seen = json_dumps(json_object_get(r->object, key), JSON_ENCODE_ANY | JSON_COMPACT);
    r->status =
        lathe_error(LATHE_E_CONFIG, "%s: %s%s%s is %.200s; %s", r->name, r->parent ? r->parent : "",
                    r->parent ? "." : "", key, seen != NULL ? seen : "missing", why);
    free(seen);
}

int64_t lathe__config_int(lathe_config_reader *r, const char *key, int64_t def, int64_t lo,
                          int64_t hi)
{
    const json_t *value = value_of(r, key);
    if (r->status != LATHE_OK)
        return lo;
    if (value == NULL) {
        if (def == LATHE_REQUIRED)
            r->status = lathe_error(LATHE_E_CONFIG, "%s: the key %s is missing", r->name, key);
        return def == LATHE_REQUIRED ? lo : def;
    }
    if (!json_is_integer(value) || json_integer_value(value) < lo ||
        json_integer_value(value) > hi) {
        char why[96];
        snprintf(why, sizeof why, "expected an integer from %lld to %lld", (long long)lo,
                 (long long)hi);
        lathe__config_refuse(r, key, why);
        return lo;
    }
    return json_integer_value(value);
}

double lathe__config_positive(lathe_config_reader *r, const char *key, double def)
{
    const json_t *value = value_of(r, key);
    if (value == NULL || r->status != LATHE_OK)
        return def;
    const double x = json_number_value(value);
    if (!json_is_number(value) || !isfinite(x) || x <= 0.0)
        lathe__config_refuse(r, key, "expected a number above 0");
    return x;
}

double lathe__config_share(lathe_config_reader *r, const char *key)
{
    const json_t *value = value_of(r, key);
    if (value == NULL || r->status != LATHE_OK)
        return 0.0;
    const double x = json_number_value(value);
    if (!json_is_number(value) || !(x >= 0.0 && x <= 1.0))
        lathe__config_refuse(r, key, "expected a number from 0 to 1");
    return x;
}

int32_t lathe__config_bool(lathe_config_reader *r, const char *key, int32_t def)
{
    const json_t *value = value_of(r, key);
    if (value == NULL || r->status != LATHE_OK)
        return def;
    if (!json_is_boolean(value))
        lathe__config_refuse(r, key, "expected true or false");
    return json_is_true(value);
}

void lathe__config_only_string(lathe_config_reader *r, const char *key, const char *choices)
{
    const json_t *value = value_of(r, key);
    if (value == NULL)
        return;
    const char *text = json_string_value(value);
    for (const char *at = choices; text != NULL && at != NULL;) {
        const size_t n = strcspn(at, "|");
        if (strlen(text) == n && memcmp(text, at, n) == 0)
            return;
        at = at[n] == '|' ? at + n + 1 : NULL;
    }
    char why[96];
    snprintf(why, sizeof why, "supported: %s", choices);
    lathe__config_refuse(r, key, why);
}

void lathe__config_only_number(lathe_config_reader *r, const char *key, double want)
{
    const json_t *value = value_of(r, key);
    if (value == NULL)
        return;
    const double seen =
        json_is_boolean(value) ? (double)json_is_true(value) : json_number_value(value);
    if ((json_is_number(value) || json_is_boolean(value)) && seen == want)
        return;
    char why[64];
    snprintf(why, sizeof why, "only %g is supported", want);
    lathe__config_refuse(r, key, why);
}

static double rope_number(lathe_config_reader *r, const char *parent, json_t *rope, const char *key,
                          double def)
{
    lathe_config_reader sub = {
        .name = r->name, .object = rope, .status = r->status, .parent = parent};
    if (value_of(&sub, key) == NULL && def <= 0.0)
        lathe__config_refuse(&sub, key, "this rope_type needs it");
    const double x = lathe__config_positive(&sub, key, def);
    r->status = sub.status;
    return x;
}

/* The object that the rotary settings stand in, as transformers chooses it: a rope_scaling that is not empty
 * comes before rope_parameters, whatever is in either. NULL: neither is set. */
static json_t *rope_object(lathe_config_reader *r, const char **out_key)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < 2; i++) {
        json_t *value = value_of(r, keys[i]);
        *out_key = keys[i];
        if (json_is_object(value) && json_object_size(value) > 0)
            return value;
        if (value != NULL && !json_is_object(value) &&
            !(json_is_array(value) && json_array_size(value) == 0))
            lathe__config_refuse(r, keys[i], "expected an object");
    }
    return NULL;
}

/* Settings for each type of layer, of which the models read here have one. */
static void refuse_nested(lathe_config_reader *r, const char *key, json_t *rope)
{
    const char *name;
    json_t *value;
    json_object_foreach(rope, name, value)
    {
        if (json_is_object(value))
            lathe__config_refuse(r, key,
                                 "expected the settings themselves, not an object for each type "
                                 "of layer");
    }
}

/* Rotary positions of a part of each head: transformers reads the factor in its scaled types alone, where a
 * model of one of these families then fails. */
static void check_partial(lathe_config_reader *r, lathe_config_reader *rope, int32_t type)
{
    lathe_config_reader *from = value_of(rope, "partial_rotary_factor") != NULL ? rope : r;
    const json_t *value = value_of(from, "partial_rotary_factor");
    if (value == NULL || json_number_value(value) == 1.0)
        return;
    if (type != LATHE_ROPE_DEFAULT || !json_is_number(value))
        lathe__config_only_number(from, "partial_rotary_factor", 1.0);
    else
        lathe_log(LATHE_LOG_WARN,
                  "%s: partial_rotary_factor is %g and changes nothing: with rope_type default, "
                  "transformers turns whole heads too",
                  r->name, json_number_value(value));
    r->status = from->status;
}

static void read_llama3(lathe_config_reader *r, const char *key, json_t *rope,
                        lathe_model_config *out)
{
    out->rope.factor = rope_number(r, key, rope, "factor", 0.0);
    out->rope.low_freq_factor = rope_number(r, key, rope, "low_freq_factor", 0.0);
    out->rope.high_freq_factor = rope_number(r, key, rope, "high_freq_factor", 0.0);
    /* transformers prefers the number beside the object, as it stands in Phi-3's files. */
    double positions = lathe__config_positive(r, "original_max_position_embeddings", 0.0);
    if (positions == 0.0)
        positions = rope_number(r, key, rope, "original_max_position_embeddings",
                                (double)out->max_positions);
    if (r->status == LATHE_OK && !(positions >= 1.0 && positions <= 1e15))
        lathe__config_refuse(r, key, "original_max_position_embeddings must be from 1 to 1e15");
    if (r->status == LATHE_OK)
        out->rope.original_max_positions = (int64_t)positions;
    if (r->status == LATHE_OK && out->rope.high_freq_factor <= out->rope.low_freq_factor)
        lathe__config_refuse(r, key, "high_freq_factor must be above low_freq_factor");
}

void lathe__config_rope(lathe_config_reader *r, lathe_model_config *out)
{
    const char *key = NULL;
    json_t *rope = rope_object(r, &key);
    lathe_config_reader sub = {.name = r->name, .object = rope, .status = r->status, .parent = key};
    out->rope.type = LATHE_ROPE_DEFAULT;
    out->rope.theta = lathe__config_positive(r, "rope_theta", 10000.0);
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    if (type == NULL)
        type = json_string_value(json_object_get(rope, "type"));
    refuse_nested(r, key, rope);
    if (rope == NULL || r->status != LATHE_OK) {
        check_partial(r, r, LATHE_ROPE_DEFAULT);
        return;
    }
    out->rope.theta = rope_number(r, key, rope, "rope_theta", out->rope.theta);
    if (type == NULL && value_of(&sub, "factor") != NULL)
        lathe_log(LATHE_LOG_WARN,
                  "%s: %s names no rope_type, so its factor changes nothing, as in transformers",
                  r->name, key);
    if (type != NULL && strcmp(type, "linear") == 0) {
        out->rope.type = LATHE_ROPE_LINEAR;
        out->rope.factor = rope_number(r, key, rope, "factor", 0.0);
    } else if (type != NULL && strcmp(type, "llama3") == 0) {
        out->rope.type = LATHE_ROPE_LLAMA3;
        read_llama3(r, key, rope, out);
    } else if (type != NULL && strcmp(type, "default") != 0) {
        lathe__config_refuse(r, key, "supported values of rope_type: default, linear, llama3");
    }
    sub.status = r->status;
    check_partial(r, &sub, out->rope.type);
}

const char *lathe__config_alias(lathe_config_reader *r, const char *key, const char *alias)
{
    const json_t *own = value_of(r, key), *other = value_of(r, alias);
    if (other == NULL)
        return key;
    if (own != NULL && !json_equal(own, other))
        lathe_log(LATHE_LOG_WARN, "%s: %s and %s differ; %s counts, as in transformers", r->name,
                  key, alias, alias);
    return alias;
}

void lathe__config_full_attention(lathe_config_reader *r, int64_t n_layers)
{
    const json_t *types = value_of(r, "layer_types");
    if (types == NULL)
        return;
    if (!json_is_array(types) || (int64_t)json_array_size(types) != n_layers)
        lathe__config_refuse(r, "layer_types", "expected one name for each layer");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type == NULL || strcmp(type, "full_attention") != 0)
            lathe__config_refuse(r, "layer_types", "only full_attention is supported");
    }
}

void lathe__config_eos(lathe_config_reader *r, int32_t *ids, int32_t *out_n)
{
    const json_t *eos = value_of(r, "eos_token_id");
    const size_t n = json_is_array(eos) ? json_array_size(eos) : eos != NULL;
    *out_n = 0;
    if (n > LATHE_MAX_EOS)
        lathe__config_refuse(r, "eos_token_id", "at most 16 tokens are supported");
    for (size_t i = 0; i < n && r->status == LATHE_OK; i++) {
        const json_t *id = json_is_array(eos) ? json_array_get(eos, i) : eos;
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            lathe__config_refuse(r, "eos_token_id", "expected token ids");
        else
            ids[(*out_n)++] = (int32_t)json_integer_value(id);
    }
}

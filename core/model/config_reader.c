/* Checked access to the keys of a config.json. */
#include "model/config_reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

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
    r->status = lathe_error(LATHE_E_CONFIG, "%s: %s is %.200s; %s", r->name, key,
                            seen != NULL ? seen : "missing", why);
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

static double rope_number(lathe_config_reader *r, json_t *rope, const char *key, double def)
{
    lathe_config_reader sub = {.name = r->name, .object = rope, .status = r->status};
    if (value_of(&sub, key) == NULL && def <= 0.0)
        lathe__config_refuse(&sub, key, "this rope_type needs it");
    const double x = lathe__config_positive(&sub, key, def);
    r->status = sub.status;
    return x;
}

void lathe__config_rope(lathe_config_reader *r, lathe_model_config *out)
{
    json_t *rope = value_of(r, "rope_parameters");
    const char *key = "rope_parameters";
    out->rope.type = LATHE_ROPE_DEFAULT;
    out->rope.theta = lathe__config_positive(r, "rope_theta", 10000.0);
    if (rope == NULL) {
        key = "rope_scaling";
        rope = value_of(r, key);
    }
    if (rope == NULL || r->status != LATHE_OK)
        return;
    if (!json_is_object(rope)) {
        lathe__config_refuse(r, key, "expected an object");
        return;
    }
    out->rope.theta = rope_number(r, rope, "rope_theta", out->rope.theta);
    lathe_config_reader sub = {.name = r->name, .object = rope, .status = r->status};
    lathe__config_only_number(&sub, "partial_rotary_factor", 1.0);
    r->status = sub.status;
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    if (type == NULL)
        type = json_string_value(json_object_get(rope, "type"));
    if (type == NULL || strcmp(type, "default") == 0) {
        if (type == NULL && value_of(&sub, "rope_theta") == NULL)
            lathe__config_refuse(r, key, "it names no rope_type");
        return;
    }
    if (strcmp(type, "linear") == 0) {
        out->rope.type = LATHE_ROPE_LINEAR;
        out->rope.factor = rope_number(r, rope, "factor", 0.0);
    } else if (strcmp(type, "llama3") == 0) {
        out->rope.type = LATHE_ROPE_LLAMA3;
        out->rope.factor = rope_number(r, rope, "factor", 0.0);
        out->rope.low_freq_factor = rope_number(r, rope, "low_freq_factor", 0.0);
        out->rope.high_freq_factor = rope_number(r, rope, "high_freq_factor", 0.0);
        const double positions = rope_number(r, rope, "original_max_position_embeddings", 0.0);
        if (r->status == LATHE_OK && !(positions >= 1.0 && positions <= 1e15))
            lathe__config_refuse(r, key, "original_max_position_embeddings must be from 1 to 1e15");
        if (r->status == LATHE_OK)
            out->rope.original_max_positions = (int64_t)positions;
        if (r->status == LATHE_OK && out->rope.high_freq_factor <= out->rope.low_freq_factor)
            lathe__config_refuse(r, key, "high_freq_factor must be above low_freq_factor");
    } else {
        lathe__config_refuse(r, key, "supported values of rope_type: default, linear, llama3");
    }
}

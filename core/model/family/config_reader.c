/* Reads the keys of a config.json and checks them. */
#include "model/family/config_reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

json_t *lathe__config_value(const lathe_config_reader *r, const char *key)
{
    json_t *value = json_object_get(r->object, key);
    return json_is_null(value) ? NULL : value;
}

void lathe__config_refuse(lathe_config_reader *r, const char *key, const char *why)
{
    if (r->status != LATHE_OK)
        return;
    char *seen = json_dumps(json_object_get(r->object, key), JSON_ENCODE_ANY | JSON_COMPACT);
    char path[128];
    (void)snprintf(path, sizeof path, "%s%s%s", r->parent ? r->parent : "", r->parent ? "." : "",
                   key);
    r->status = lathe_error_at(LATHE_E_CONFIG, "model", path, "%s%s%s is %.200s; %s",
                               LATHE_CONFIG_AT(r), path, seen != NULL ? seen : "missing", why);
    free(seen);
}

int64_t lathe__config_int(lathe_config_reader *r, const char *key, int64_t def, int64_t lo,
                          int64_t hi)
{
    const json_t *value = lathe__config_value(r, key);
    if (r->status != LATHE_OK)
        return lo;
    if (value == NULL) {
        if (def == LATHE_REQUIRED)
            r->status = lathe_error_at(LATHE_E_CONFIG, "model", key, "%s%sthe key %s is missing",
                                       LATHE_CONFIG_AT(r), key);
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
    const json_t *value = lathe__config_value(r, key);
    if (value == NULL || r->status != LATHE_OK)
        return def;
    const double x = json_number_value(value);
    if (!json_is_number(value) || !isfinite(x) || x <= 0.0)
        lathe__config_refuse(r, key, "expected a number above 0");
    return x;
}

double lathe__config_share(lathe_config_reader *r, const char *key)
{
    const json_t *value = lathe__config_value(r, key);
    if (value == NULL || r->status != LATHE_OK)
        return 0.0;
    const double x = json_number_value(value);
    if (!json_is_number(value) || !(x >= 0.0 && x <= 1.0))
        lathe__config_refuse(r, key, "expected a number from 0 to 1");
    return x;
}

int32_t lathe__config_bool(lathe_config_reader *r, const char *key, int32_t def)
{
    const json_t *value = lathe__config_value(r, key);
    if (value == NULL || r->status != LATHE_OK)
        return def;
    if (!json_is_boolean(value))
        lathe__config_refuse(r, key, "expected true or false");
    return json_is_true(value);
}

void lathe__config_only_number(lathe_config_reader *r, const char *key, double want)
{
    const json_t *value = lathe__config_value(r, key);
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

void lathe__config_eos(lathe_config_reader *r, int32_t *ids, int32_t max, int32_t *out_n)
{
    const json_t *eos = lathe__config_value(r, "eos_token_id");
    const size_t n = json_is_array(eos) ? json_array_size(eos) : eos != NULL;
    *out_n = 0;
    if (n > (size_t)max)
        lathe__config_refuse(r, "eos_token_id", "at most 16 tokens are supported");
    for (size_t i = 0; i < n && r->status == LATHE_OK; i++) {
        const json_t *id = json_is_array(eos) ? json_array_get(eos, i) : eos;
        if (!json_is_integer(id) || json_integer_value(id) > INT32_MAX)
            lathe__config_refuse(r, "eos_token_id", "expected token ids");
        else if (json_integer_value(id) >= 0) /* -1 stands for none in many files */
            ids[(*out_n)++] = (int32_t)json_integer_value(id);
    }
}

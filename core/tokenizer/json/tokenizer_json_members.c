/* Members of a tokenizer.json, and the errors about them. */
#include "tokenizer/json/tokenizer_json_members.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

lathe_status lathe__tj_expected(const char *place, const char *key, const json_t *seen,
                                const char *expected)
{
    static const char *const kinds[] = {"an object", "a list", "a string", "a whole number",
                                        "a number",  "true",   "false",    "null"};
    return lathe_error(LATHE_E_PARSE, "%s%s%s: expected %s, seen %s", place, *key ? "." : "", key,
                       expected, seen ? kinds[json_typeof(seen)] : "nothing");
}

lathe_status lathe__tj_unsupported(const char *place, const char *key, const char *seen,
                                   const char *supported)
{
    return lathe_error(LATHE_E_UNSUPPORTED, "%s.%s is \"%s\"; supported: %s", place, key, seen,
                       supported);
}

lathe_status lathe__tj_flag(const char *place, const json_t *node, const char *key, int missing,
                            int32_t *out)
{
    const json_t *value = json_object_get(node, key);
    *out = missing;
    if (value == NULL || json_is_null(value))
        return LATHE_OK;
    if (!json_is_boolean(value))
        return lathe__tj_expected(place, key, value, "true or false");
    *out = json_is_true(value);
    return LATHE_OK;
}

lathe_status lathe__tj_text(const char *place, const json_t *node, const char *key,
                            const char **out)
{
    const json_t *value = json_object_get(node, key);
    *out = NULL;
    if (value == NULL || json_is_null(value))
        return LATHE_OK;
    if (!json_is_string(value))
        return lathe__tj_expected(place, key, value, "a string");
    if (strlen(json_string_value(value)) != json_string_length(value))
        return lathe_error(LATHE_E_PARSE, "%s.%s: expected a string without \\u0000", place, key);
    *out = json_string_value(value);
    return LATHE_OK;
}

char *lathe__tj_copy_text(const char *text, size_t n)
{
    char *out = malloc(n + 1);
    if (out) {
        memcpy(out, text, n);
        out[n] = 0;
    }
    return out;
}

lathe_status lathe__tj_type(const char *place, const json_t *node, const char **out)
{
    if (!json_is_object(node))
        return lathe__tj_expected(place, "", node, "an object");
    LATHE_TRY(lathe__tj_text(place, node, "type", out));
    return *out ? LATHE_OK : lathe__tj_expected(place, "type", NULL, "a string");
}

lathe_status lathe__tj_copy(const char *place, const json_t *node, const char *key,
                            lathe_piece *out)
{
    const json_t *value = json_object_get(node, key);
    if (!json_is_string(value))
        return lathe__tj_expected(place, key, value, "a string");
    out->bytes = (int64_t)json_string_length(value);
    out->text = lathe__tj_copy_text(json_string_value(value), json_string_length(value));
    return out->text ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "tokenizer");
}

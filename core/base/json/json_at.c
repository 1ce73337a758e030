/* Follows a path of keys and indices, and writes scalars as text. */
#include "base/json/json_at.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const json_t *lathe_json_at(const json_t *node, const char *path)
{
    char part[128];
    while (node != NULL && *path != '\0') {
        const size_t n = strcspn(path, ".");
        if (n >= sizeof part)
            return NULL;
        memcpy(part, path, n);
        part[n] = '\0';
        node = json_is_array(node) ? json_array_get(node, (size_t)strtoul(part, NULL, 10))
                                   : json_object_get(node, part);
        path += n + (path[n] == '.');
    }
    return node;
}

const char *lathe_json_scalar(lathe_arena *arena, const json_t *value)
{
    char text[64];
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    if (json_is_integer(value))
        (void)snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        (void)snprintf(text, sizeof text, "%.17g", json_real_value(value));
    else
        return NULL;
    return lathe_arena_strdup(arena, text);
}

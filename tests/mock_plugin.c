/* Loads a plugin under test without the core's loader. */
#include "mock_plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

const lathe_plugin *mock_plugin_open(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const lathe_plugin *plugin = library ? dlsym(library, LATHE_PLUGIN_ENTRY_NAME) : NULL;
    if (plugin == NULL) {
        (void)fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    return plugin;
}

/* The text between the quotes of a TOML string literal; valid as long as the program runs. */
static const char *unquoted(const char *literal)
{
    static char texts[MOCK_MAX_FIELDS][128];
    static int used;
    char *text = texts[used++ % MOCK_MAX_FIELDS];
    const char *begin = strchr(literal, '"'), *end = strrchr(literal, '"');
    (void)snprintf(text, sizeof texts[0], "%.*s", begin ? (int)(end - begin - 1) : 0,
                   begin ? begin + 1 : "");
    return text;
}

void mock_defaults(const lathe_plugin *plugin, lathe_value *values)
{
    static const char *items[MOCK_MAX_FIELDS];
    if (plugin->n_fields > MOCK_MAX_FIELDS)
        abort();
    memset(values, 0, MOCK_MAX_FIELDS * sizeof *values);
    for (int32_t i = 0; i < plugin->n_fields; i++) {
        const lathe_field *field = &plugin->fields[i];
        lathe_value *v = &values[i];
        v->type = field->type;
        v->is_set = field->default_value != NULL;
        if (!v->is_set)
            continue;
        if (field->type == LATHE_T_BOOL)
            v->i = strcmp(field->default_value, "true") == 0;
        else if (field->type == LATHE_T_STRING)
            v->s = unquoted(field->default_value);
        else if (field->type == LATHE_T_INT || field->type == LATHE_T_FLOAT) {
            v->f = strtod(field->default_value, NULL);
            v->i = (int64_t)v->f;
        } else if (field->type == LATHE_T_STRING_LIST) {
            v->n = strchr(field->default_value, '"') != NULL;
            items[i] = unquoted(field->default_value);
            v->strs = &items[i];
        } else if (field->type == LATHE_T_TABLE) {
            v->s = field->default_value; /* "{}" is the same in JSON */
        }
    }
}

lathe_value *mock_value(const lathe_plugin *plugin, lathe_value *values, const char *key)
{
    for (int32_t i = 0; i < plugin->n_fields; i++)
        if (strcmp(plugin->fields[i].key, key) == 0) {
            values[i].is_set = values[i].is_explicit = 1;
            return &values[i];
        }
    return NULL;
}

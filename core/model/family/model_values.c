/* Reads the keys of a config.json as the values of a plugin's schema, by the same rules as the run
 * file. */
#include "model/family/model_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json/json.h"
#include "base/log.h"
#include "lathe/model.h"
#include "plug/model_types.h"
#include "plug/schema_check.h"
#include "plug/schema_value.h"

/* The name of a key in the object: an alias if it is set, else the key itself. */
static const char *name_in_file(const lathe_config_reader *r, const lathe_model_v1 *table,
                                const char *key)
{
    for (int32_t i = 0; i < table->n_aliases; i++) {
        const char *alias = table->aliases[i].alias;
        if (strcmp(table->aliases[i].key, key) != 0)
            continue;
        const json_t *own = lathe__config_value(r, key), *other = lathe__config_value(r, alias);
        if (other == NULL)
            continue;
        if (own != NULL && !json_equal(own, other))
            lathe_log(LATHE_LOG_WARN, "%s: %s and %s differ; %s counts, as in transformers",
                      r->name, key, alias, alias);
        return alias;
    }
    return key;
}

/* A JSON value as a node of TOML. NULL: out of memory, or a kind of value that no field accepts. */
static lathe_toml_node *node_of(const json_t *value, lathe_arena *arena)
{
    lathe_toml_node *node = lathe_arena_alloc(arena, (int64_t)sizeof *node);
    if (node == NULL)
        return NULL;
    memset(node, 0, sizeof *node);
    if (json_is_boolean(value)) {
        node->kind = LATHE_TOML_BOOL;
        node->i = json_is_true(value);
    } else if (json_is_integer(value)) {
        node->kind = LATHE_TOML_INT;
        node->i = (int64_t)json_integer_value(value);
        node->f = (double)node->i;
    } else if (json_is_real(value)) {
        node->kind = LATHE_TOML_FLOAT;
        node->f = json_real_value(value);
    } else if (json_is_string(value)) {
        node->kind = LATHE_TOML_STRING;
        node->s = lathe_arena_strdup(arena, json_string_value(value));
        return node->s != NULL ? node : NULL;
    } else {
        return NULL;
    }
    return node;
}

static lathe_toml_node *list_of(const json_t *value, lathe_arena *arena)
{
    const size_t n = json_array_size(value);
    lathe_toml_node *node = lathe_arena_alloc(arena, (int64_t)sizeof *node);
    lathe_toml_node **children = lathe_arena_alloc(arena, (int64_t)((n + 1) * sizeof *children));
    if (node == NULL || children == NULL)
        return NULL;
    memset(node, 0, sizeof *node);
    node->kind = LATHE_TOML_ARRAY;
    node->children = children;
    node->n_children = (int64_t)n;
    for (size_t i = 0; i < n; i++)
        if ((children[i] = node_of(json_array_get(value, i), arena)) == NULL)
            return NULL;
    return node;
}

static int fits_type(const lathe_field *field, const json_t *value)
{
    switch (field->type) {
    case LATHE_T_BOOL:
        return json_is_boolean(value);
    case LATHE_T_INT:
        return json_is_integer(value);
    case LATHE_T_FLOAT:
        return json_is_number(value);
    case LATHE_T_STRING:
        return json_is_string(value);
    case LATHE_T_TABLE:
        return json_is_object(value) || json_is_array(value);
    default:
        return json_is_array(value);
    }
}

/* A table is passed as its text. */
static lathe_status table_value(const json_t *value, lathe_arena *arena, lathe_value *out)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    out->s = text != NULL ? lathe_arena_strdup(arena, text) : NULL;
    out->type = LATHE_T_TABLE;
    out->is_set = 1;
    free(text);
    return out->s != NULL ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for a configuration");
}

static void read_value(lathe_config_reader *r, const lathe_field *field, const char *name,
                       const json_t *value, lathe_arena *arena, lathe_value *out)
{
    char why[256], expected[80];
    (void)snprintf(expected, sizeof expected, "expected %s", lathe_type_text(field->type));
    if ((field->flags & LATHE_FIELD_OR_TEXT) && json_is_string(value)) {
        out->s = lathe_arena_strdup(arena, json_string_value(value));
        out->type = LATHE_T_STRING;
        out->is_set = out->is_explicit = 1;
        r->status =
            out->s != NULL ? LATHE_OK : lathe_error(LATHE_E_NOMEM, "no memory for a configuration");
        return;
    }
    if (!fits_type(field, value)) {
        lathe__config_refuse(r, name, expected);
        return;
    }
    if (field->type == LATHE_T_TABLE) {
        r->status = table_value(value, arena, out);
        return;
    }
    const lathe_toml_node *node =
        json_is_array(value) ? list_of(value, arena) : node_of(value, arena);
    if (node == NULL) {
        lathe__config_refuse(r, name, expected);
        return;
    }
    const lathe_status status =
        lathe_value_from_toml(field, node, arena, out, why, sizeof why, NULL);
    if (status == LATHE_E_CONFIG)
        r->status = lathe_error_at(LATHE_E_CONFIG, "model", name, "%s%s%s %s", LATHE_CONFIG_AT(r),
                                   name, why);
    else
        r->status = status;
    out->is_explicit = 1;
}

static void read_default(lathe_config_reader *r, const lathe_field *field, lathe_arena *arena,
                         lathe_value *out)
{
    char why[256];
    lathe_toml_node *node = NULL;
    r->status = lathe_toml_literal(field->default_value, arena, &node);
    if (r->status == LATHE_OK)
        r->status = lathe_value_from_toml(field, node, arena, out, why, sizeof why, NULL);
}

void lathe_model_values_read(lathe_config_reader *r, const lathe_plugin *plugin, lathe_arena *arena,
                             lathe_value **out)
{
    lathe_value *values =
        lathe_arena_alloc(arena, (plugin->n_fields + 1) * (int64_t)sizeof *values);
    *out = values;
    if (values == NULL) {
        r->status = lathe_error(LATHE_E_NOMEM, "no memory for a configuration");
        return;
    }
    memset(values, 0, (size_t)(plugin->n_fields + 1) * sizeof *values);
    for (int32_t i = 0; i < plugin->n_fields && r->status == LATHE_OK; i++) {
        const lathe_field *field = &plugin->fields[i];
        const char *name = name_in_file(r, plugin->table, field->key);
        const json_t *value = json_object_get(r->object, name);
        const int is_unset = json_is_null(value) && (field->flags & LATHE_FIELD_NULLABLE);
        values[i].type = field->type;
        if (value != NULL && !json_is_null(value))
            read_value(r, field, name, value, arena, &values[i]);
        else if (field->default_value != NULL && !is_unset)
            read_default(r, field, arena, &values[i]);
        else if ((field->flags & LATHE_FIELD_REQUIRED) && !is_unset)
            r->status = lathe_error_at(LATHE_E_CONFIG, "model", field->key,
                                       "%s%sthe key %s is missing", LATHE_CONFIG_AT(r), field->key);
    }
}

void lathe_model_values_refuse_unknown(lathe_config_reader *r, const lathe_plugin *plugin,
                                       const char *model_type, const char *const *others)
{
    const char *key;
    json_t *value;
    json_object_foreach(r->object, key, value)
    {
        int known = lathe_model_plugin_has_key(plugin, key);
        for (const char *const *other = others; *other != NULL && !known; other++)
            known = strcmp(*other, key) == 0;
        if (!known && r->status == LATHE_OK)
            r->status =
                lathe_error_at(LATHE_E_CONFIG, "model", key, "%s%smodel_type %s has no key %s",
                               LATHE_CONFIG_AT(r), model_type, key);
    }
}

/* transformers refuses 1.0 where it expects a list of whole numbers. */
static void make_whole(json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        json_array_set_new(list, i,
                           json_integer((json_int_t)json_number_value(json_array_get(list, i))));
}

lathe_status lathe_model_values_write(const lathe_plugin *plugin, const lathe_value *values,
                                      json_t *object)
{
    for (int32_t i = 0; i < plugin->n_fields; i++) {
        lathe_buffer text = LATHE_BUFFER_INIT;
        json_t *value = NULL;
        lathe_value_json(&values[i], &text);
        const lathe_status status =
            text.status == LATHE_OK ? LATHE_OK : lathe_error(text.status, "no memory for a value");
        if (status == LATHE_OK)
            value = json_loadb(text.data, (size_t)text.len, JSON_DECODE_ANY, NULL);
        lathe_buffer_fini(&text);
        LATHE_TRY(status);
        if (value == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory for the key %s", plugin->fields[i].key);
        if (plugin->fields[i].flags & LATHE_FIELD_WHOLE)
            make_whole(value);
        if (values[i].is_set || (plugin->fields[i].flags & LATHE_FIELD_NULLABLE))
            json_object_set_new(object, plugin->fields[i].key, value);
        else
            json_decref(value);
    }
    return LATHE_OK;
}

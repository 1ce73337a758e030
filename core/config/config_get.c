/* Reads a configuration: values, places, JSON. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "config/config_fill.h"
#include "config/config_state.h"
#include "plug/kind.h"
#include "plug/schema_check.h"

const char *lathe_config_path(const lathe_config *config)
{
    return config->path;
}

const struct lathe__section *lathe__config_section(const lathe_config *config, const char *name)
{
    for (int32_t i = 0; i < config->n_sections; i++)
        if (strcmp(config->sections[i].name, name) == 0)
            return &config->sections[i];
    return NULL;
}

const lathe_value *lathe_config_get(const lathe_config *config, const char *section,
                                    const char *key)
{
    const struct lathe__section *found = lathe__config_section(config, section);
    if (found == NULL)
        return NULL;
    const int32_t i = lathe_schema_index(found->fields, found->n_fields, key);
    return i < 0 ? NULL : &found->values[i];
}

const lathe_field *lathe_config_fields(const lathe_config *config, const char *section,
                                       int32_t *out_n)
{
    const struct lathe__section *found = lathe__config_section(config, section);
    *out_n = found != NULL ? found->n_fields : 0;
    return found != NULL ? found->fields : NULL;
}

int64_t lathe_config_int(const lathe_config *config, const char *section, const char *key)
{
    const lathe_value *value = lathe_config_get(config, section, key);
    return value != NULL && value->is_set ? value->i : 0;
}

double lathe_config_float(const lathe_config *config, const char *section, const char *key)
{
    const lathe_value *value = lathe_config_get(config, section, key);
    return value != NULL && value->is_set ? value->f : 0.0;
}

const char *lathe_config_string(const lathe_config *config, const char *section, const char *key)
{
    const lathe_value *value = lathe_config_get(config, section, key);
    return value != NULL && value->is_set ? value->s : NULL;
}

int lathe_config_is_explicit(const lathe_config *config, const char *section, const char *key)
{
    const lathe_value *value = lathe_config_get(config, section, key);
    return value != NULL && value->is_explicit;
}

int lathe_config_names(const lathe_config *config, int32_t kind)
{
    const lathe_toml_node *table = lathe_toml_find(config->root, lathe_kind_name(kind));
    return table != NULL && table->kind == LATHE_TOML_TABLE &&
           lathe_toml_find(table, "name") != NULL;
}

int lathe_config_is_set(const lathe_config *config, const char *section, const char *key)
{
    const lathe_value *value = lathe_config_get(config, section, key);
    return value != NULL && value->is_set;
}

uint64_t lathe_config_seed(const lathe_config *config, const char *section)
{
    const int own = lathe_config_is_set(config, section, "seed");
    return (uint64_t)lathe_config_int(config, own ? section : "train", "seed");
}

const lathe_part *lathe_config_part(const lathe_config *config, int32_t kind)
{
    return &config->parts[kind > 0 && kind < LATHE_N_KINDS ? kind : 0];
}

lathe_place lathe_config_where(const lathe_config *config, const char *section, const char *key)
{
    const lathe_toml_node *table = lathe_toml_find(config->root, section);
    const lathe_toml_node *node = lathe_toml_find(table, key);
    lathe_place place = {.file = config->path};
    if (node != NULL)
        place = lathe_value_place(config->path, node);
    else if (table != NULL)
        place = lathe_key_place(config->path, table);
    if (place.file[0] == '\0')
        place.file = "command line";
    return place;
}

/* The value of a key of a table, or the element of an array that the key numbers. */
static const lathe_toml_node *child_of(const lathe_toml_node *node, const char *key)
{
    if (node->kind != LATHE_TOML_ARRAY)
        return lathe_toml_find(node, key);
    char *end;
    const long long index = strtoll(key, &end, 10);
    return end != key && *end == '\0' && index >= 0 && index < node->n_children
               ? node->children[index]
               : NULL;
}

const lathe_toml_node *lathe__config_at(const lathe_toml_node *node, const char *path)
{
    const lathe_toml_node *next = node;
    char key[64];
    while (next != NULL && path != NULL && *path != '\0') {
        const size_t n = strcspn(path, ".");
        (void)snprintf(key, sizeof key, "%.*s", (int)n, path);
        node = next;
        next = child_of(node, key);
        path += path[n] == '.' ? n + 1 : n;
    }
    return next != NULL ? next : node;
}

lathe_place lathe_config_where_key(const lathe_config *config, const char *section,
                                   const char *path, const char *otherwise)
{
    const lathe_toml_node *table = lathe_toml_find(config->root, section);
    const lathe_toml_node *node = path[0] != '\0' ? lathe__config_at(table, path) : NULL;
    return node != NULL && node != table ? lathe_value_place(config->path, node)
                                         : lathe_config_where(config, section, otherwise);
}

lathe_place lathe_config_where_error(const lathe_config *config, const char *section,
                                     const char *key)
{
    const char *at = lathe_error_section();
    if (at[0] == '\0')
        return lathe_config_where(config, section, key);
    return lathe_config_where_key(config, at, lathe_error_key(),
                                  strcmp(at, section) == 0 ? key : "name");
}

lathe_place lathe_config_where_in(const lathe_config *config, const char *section, const char *key,
                                  int64_t index, const char *inner)
{
    const lathe_toml_node *node = lathe_toml_find(lathe_toml_find(config->root, section), key);
    if (node != NULL && node->kind == LATHE_TOML_ARRAY)
        node = index < node->n_children ? node->children[index] : NULL;
    if (node == NULL || node->origin != NULL)
        return lathe_config_where(config, section, key);
    return lathe_value_place(config->path, lathe__config_at(node, inner));
}

int lathe_config_is_override(const lathe_config *config, const char *section, const char *key)
{
    const lathe_toml_node *node = lathe_toml_find(lathe_toml_find(config->root, section), key);
    return node != NULL && node->origin != NULL;
}

void lathe_config_add(const lathe_config *config, lathe_diags *diags, int32_t severity,
                      const char *section, const char *key, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const lathe_place place = lathe_config_where(config, section, key);
    lathe_diags_add(diags, severity, &place, NULL, "%s", text);
}

static void values_json(const struct lathe__section *section, int first, lathe_buffer *out)
{
    for (int32_t i = 0; section != NULL && i < section->n_fields; i++) {
        if (!section->values[i].is_set)
            continue;
        lathe_buffer_puts(out, first ? "" : ", ");
        first = 0;
        lathe_buffer_json_string(out, section->fields[i].key);
        lathe_buffer_puts(out, ": ");
        lathe_value_json(&section->values[i], out);
    }
}

struct lathe_registry *lathe_config_registry(const lathe_config *config)
{
    return config->registry;
}

void lathe_config_json(const lathe_config *config, lathe_buffer *out)
{
    int32_t n_core = 0;
    const lathe_core_section *core = lathe_core_sections(&n_core);
    int first = 1;
    lathe_buffer_puts(out, "{");
    for (int32_t i = 0; i < n_core; i++) {
        if (lathe_kind_id(core[i].name) != 0)
            continue; /* done with the kinds below */
        lathe_buffer_printf(out, "%s\n  \"%s\": {", first ? "" : ",", core[i].name);
        first = 0;
        values_json(lathe__config_section(config, core[i].name), 1, out);
        lathe_buffer_puts(out, "}");
    }
    for (int32_t kind = 1; kind < LATHE_N_KINDS; kind++) {
        const lathe_part *part = &config->parts[kind];
        if (lathe_kind_chosen(kind) != NULL) /* a run file has no such table */
            continue;
        if (kind == LATHE_KIND_REWARD && config->n_rewards > 0) {
            lathe__config_rewards_json(config, out);
            continue;
        }
        lathe_buffer_printf(out, ",\n  \"%s\": {\"name\": ", lathe_kind_name(kind));
        lathe_buffer_json_string(out, part->is_none && lathe_kind_none(kind) == NULL ? "none"
                                                                                     : part->name);
        if (part->component != NULL) {
            lathe_buffer_puts(out, ", \"plugin\": ");
            lathe_buffer_json_string(out, part->component->plugin->name);
            lathe_buffer_puts(out, ", \"version\": ");
            lathe_buffer_json_string(out, part->component->plugin->version);
        }
        if (part->component != NULL || kind == LATHE_KIND_MODEL)
            values_json(lathe__config_section(config, lathe_kind_name(kind)), 0, out);
        lathe_buffer_puts(out, "}");
    }
    lathe_buffer_puts(out, "\n}\n");
}

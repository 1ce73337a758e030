/* Resolves [model]: a folder whose config.json names its family, or the keys of a new model. */
#include <string.h>

#include "base/error.h"
#include "config/config_state.h"
#include "plug/kind.h"
#include "plug/model_types.h"
#include "plug/schema_check.h"
#include "plug/suggest.h"

enum { KIND = LATHE_KIND_MODEL };

static const lathe_toml_node *string_of(const lathe_toml_node *table, const char *key)
{
    const lathe_toml_node *node = lathe_toml_find(table, key);
    return node != NULL && (node->kind == LATHE_TOML_STRING || node->origin != NULL) &&
                   node->s != NULL
               ? node
               : NULL;
}

/* Writes "model.model_type is "lama", expected one of gpt2, llama (did you mean 'llama'?)". */
static lathe_status refuse_type(const lathe_config *config, lathe_registry *registry,
                                const lathe_toml_node *type, lathe_diags *diags)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_buffer list = LATHE_BUFFER_INIT;
    const char **names = NULL;
    int64_t n = 0;
    lathe_status status = lathe_model_type_names(registry, 0, &arena, &names, &n);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++)
        lathe_buffer_printf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    if (status == LATHE_OK) {
        const lathe_place place = lathe_value_place(config->path, type);
        lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, lathe_suggest(type->s, names, n),
                        "model.model_type is \"%s\", expected one of %s", type->s,
                        n > 0 ? list.data : "none: no plugin of kind model is found");
    }
    lathe_buffer_fini(&list);
    lathe_arena_fini(&arena);
    return status;
}

/* The plugin that [model] asks for by name or by model_type; NULL: it names none, or it does not
 * exist. */
static lathe_status find(lathe_config *config, const lathe_toml_node *table,
                         lathe_registry *registry, lathe_diags *diags, const lathe_component **out)
{
    const lathe_part *part = &config->parts[KIND];
    const lathe_toml_node *type = string_of(table, "model_type");
    *out = NULL;
    if (strcmp(part->name, "auto") != 0) {
        const lathe_status status = lathe_registry_find(registry, KIND, part->name, out);
        if (status == LATHE_OK || status == LATHE_E_NOMEM)
            return status;
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, "model", "name", "%s",
                         lathe_error_message());
        return LATHE_OK;
    }
    if (type == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_model_type_find(registry, type->s, out));
    return *out == NULL ? refuse_type(config, registry, type, diags) : LATHE_OK;
}

/* Refuses keys that no plugin's schema has checked: keys of a new model together with a folder, and
 * unknown keys. */
static void check_keys(const lathe_config *config, const lathe_toml_node *table, int has_path,
                       lathe_registry *registry, lathe_diags *diags)
{
    int32_t n = 0;
    const lathe_field *own = lathe_core_kind_fields(KIND, &n);
    for (int64_t i = 0; table != NULL && i < table->n_children; i++) {
        const lathe_toml_node *node = table->children[i];
        if (strcmp(node->key, "name") == 0 || lathe_schema_index(own, n, node->key) >= 0)
            continue;
        const lathe_place place = lathe_key_place(config->path, node);
        const lathe_schema_scope scope = {.section = "model", .skipped = "name", .place = place};
        if (!lathe_model_key_is_known(registry, node->key))
            lathe_schema_unknown(&scope, node, own, n, diags);
        else if (has_path)
            lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL,
                            "model.%s has no effect together with model.path, whose config.json "
                            "describes the model: remove it",
                            node->key);
    }
}

lathe_status lathe__config_model(lathe_config *config, lathe_registry *registry, lathe_diags *diags)
{
    lathe_part *part = &config->parts[KIND];
    const lathe_toml_node *table = lathe_toml_find(config->root, lathe_kind_name(KIND));
    if (table != NULL && table->kind != LATHE_TOML_TABLE)
        table = NULL; /* already reported */
    const lathe_toml_node *name = lathe_toml_find(table, "name");
    const int has_path = lathe_toml_find(table, "path") != NULL;
    const lathe_component *component = NULL;
    if (name != NULL && name->kind != LATHE_TOML_STRING) {
        const lathe_place place = lathe_value_place(config->path, name);
        lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL,
                        "model.name is %s, expected a string", lathe_toml_kind_text(name->kind));
    } else if (name != NULL) {
        part->name = name->s;
    }
    part->is_none = table == NULL;
    LATHE_TRY(find(config, table, registry, diags, &component));
    if (component != NULL && !has_path)
        return lathe__config_bind(config, KIND, component, 0, registry, diags);
    LATHE_TRY(lathe__config_bind(config, KIND, NULL, 1, NULL, diags));
    check_keys(config, table, has_path, registry, diags);
    part->component = component;
    return LATHE_OK;
}

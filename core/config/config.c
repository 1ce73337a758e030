/* Loads and checks the run's configuration. config_part.c checks the tables of plugins. */
#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "config/config_file_state.h"
#include "config/config_state.h"
#include "plug/kind.h"
#include "plug/schema_check.h"
#include "plug/suggest.h"

/* For a section with the name of a plugin: writes "[adapter] name = "lora"" for "lora". Returns 0
 * if no plugin has this name. */
static int plugin_of_name(const lathe_registry *registry, const char *name, char *out, size_t bytes)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    int found = 0;
    for (int32_t kind = 1; kind < LATHE_N_KINDS && !found; kind++) {
        const char **names = NULL;
        int64_t n = 0;
        if (lathe_kind_chosen(kind) != NULL)
            continue; /* no table names it */
        if (lathe_registry_names(registry, kind, &arena, &names, &n) != LATHE_OK)
            n = 0;
        for (int64_t i = 0; i < n && !found; i++)
            found = strcmp(names[i], name) == 0;
        if (found)
            (void)snprintf(out, bytes, "[%s] name = \"%s\"", lathe_kind_name(kind), name);
    }
    lathe_arena_fini(&arena);
    return found;
}

/* Guesses what an unknown section, or a key outside all sections, was meant to be; NULL: no guess.
 */
static const char *suggest_root(const lathe_registry *registry, const lathe_toml_node *node,
                                const char *const *words, int32_t n, char *text, size_t bytes)
{
    const int is_table = node->kind == LATHE_TOML_TABLE;
    if (is_table ? plugin_of_name(registry, node->key, text, bytes)
                 : lathe_schema_key_elsewhere(node->key, text, (int64_t)bytes))
        return text;
    return lathe_suggest(node->key, words, n);
}

/* Whether it is a [[step]] of a pipeline's file, which this is not. */
static int is_step(const lathe_toml_node *node)
{
    return strcmp(node->key, "step") == 0 && node->kind == LATHE_TOML_ARRAY &&
           node->n_children > 0 && node->children[0]->kind == LATHE_TOML_TABLE;
}

static void check_root(const lathe_config *config, const lathe_registry *registry,
                       lathe_diags *diags)
{
    char text[128];
    const char *words[32];
    int32_t n = 0, n_core = 0;
    const lathe_core_section *core = lathe_core_sections(&n_core);
    for (int32_t i = 0; i < n_core; i++)
        words[n++] = core[i].name;
    for (int32_t kind = 1; kind < LATHE_N_KINDS; kind++)
        words[n++] = lathe_kind_name(kind);
    for (int64_t i = 0; i < config->root->n_children; i++) {
        const lathe_toml_node *node = config->root->children[i];
        const lathe_place place = lathe_key_place(config->path, node);
        int known = 0;
        for (int32_t j = 0; j < n; j++)
            known |= strcmp(words[j], node->key) == 0;
        /* config_reward.c checks the elements of an array [[reward]] */
        if (known &&
            (node->kind == LATHE_TOML_TABLE ||
             (node->kind == LATHE_TOML_ARRAY && lathe_kind_id(node->key) == LATHE_KIND_REWARD)))
            continue;
        if (known)
            lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL,
                            "'%s' is %s, expected a table [%s]", node->key,
                            lathe_toml_kind_text(node->kind), node->key);
        else
            lathe_diags_add(diags, LATHE_DIAG_ERROR, &place,
                            suggest_root(registry, node, words, n, text, sizeof text),
                            node->kind == LATHE_TOML_TABLE ? "unknown section [%s]"
                            : is_step(node)
                                ? "[[%s]] is a step of a pipeline: lathe pipeline reads this file"
                                : "key '%s' is outside all sections",
                            node->key);
    }
}

static const lathe_toml_node *table_of(const lathe_config *config, const char *name)
{
    const lathe_toml_node *table = lathe_toml_find(config->root, name);
    return table != NULL && table->kind == LATHE_TOML_TABLE ? table : NULL;
}

static lathe_status check_core(lathe_config *config, const lathe_core_section *core,
                               lathe_diags *diags)
{
    struct lathe__section *section = &config->sections[config->n_sections++];
    lathe_value *values = NULL;
    section->name = core->name;
    section->table = table_of(config, core->name);
    section->fields = core->fields;
    section->n_fields = core->n_fields;
    lathe_schema_scope scope = {.section = core->name, .place = {config->path, 0, 0}};
    if (section->table != NULL)
        scope.place = lathe_key_place(config->path, section->table);
    LATHE_TRY(lathe_schema_check(&scope, section->table, core->fields, core->n_fields,
                                 &config->arena, diags, &values));
    section->values = values;
    LATHE_TRY(lathe__config_default_paths(config, core->name, values));
    return lathe__config_tables(config, section, diags);
}

/* Paths of the file are already relative to the file (config_paths.c), so the current folder does
 * not decide which code is loaded. */
static lathe_status add_paths(lathe_config *config, lathe_registry *registry, lathe_diags *diags)
{
    const lathe_value *paths = lathe_config_get(config, "plugins", "paths");
    char *here = config->path[0] != '\0' ? realpath(".", NULL) : NULL;
    lathe_status status = LATHE_OK;
    for (int64_t i = 0; status == LATHE_OK && i < paths->n; i++) {
        const char *path = paths->strs[i];
        if (path[0] != '/' && here != NULL)
            path = lathe_path_join(&config->arena, here, path);
        if (path == NULL)
            status = LATHE_E_NOMEM;
        else if (path[0] != '/')
            lathe_config_add(config, diags, LATHE_DIAG_ERROR, "plugins", "paths",
                             "plugins.paths holds '%s', expected an absolute path", path);
        else if (lathe_registry_add_path(registry, path) != LATHE_OK)
            lathe_config_add(config, diags, LATHE_DIAG_ERROR, "plugins", "paths",
                             "plugins.paths: %s", lathe_error_message());
    }
    free(here);
    return status;
}

/* A pin protects a plugin by its name, so a misspelt name must be an error. */
static void check_pinned(const lathe_registry *registry, const lathe_toml_node *pin,
                         const lathe_place *place, lathe_diags *diags)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char **names = NULL;
    int64_t n = 0;
    const char *slash = strchr(pin->key, '/');
    const char *kind = lathe_arena_strndup(&arena, pin->key, slash - pin->key);
    int found = 0;
    if (kind != NULL &&
        lathe_registry_names(registry, lathe_kind_id(kind), &arena, &names, &n) == LATHE_OK) {
        for (int64_t i = 0; i < n; i++)
            found |= strcmp(names[i], slash + 1) == 0;
        if (!found)
            lathe_diags_add(diags, LATHE_DIAG_ERROR, place, lathe_suggest(slash + 1, names, n),
                            "plugins.pins: there is no %s named '%s' to pin", kind, slash + 1);
    }
    lathe_arena_fini(&arena);
}

/* Built-in plugins that plugins in plugins.paths may replace. */
static lathe_status add_overrides(lathe_config *config, lathe_registry *registry,
                                  lathe_diags *diags)
{
    const lathe_value *names = lathe_config_get(config, "plugins", "override");
    for (int64_t i = 0; i < names->n; i++) {
        const lathe_status status = lathe_registry_override(registry, names->strs[i]);
        if (status == LATHE_E_NOMEM)
            return status;
        if (status != LATHE_OK)
            lathe_config_add(config, diags, LATHE_DIAG_ERROR, "plugins", "override",
                             "plugins.override: %s", lathe_error_message());
    }
    return LATHE_OK;
}

static void add_pins(const lathe_config *config, lathe_registry *registry, lathe_diags *diags)
{
    const lathe_toml_node *pins = lathe_toml_find(table_of(config, "plugins"), "pins");
    for (int64_t i = 0; pins != NULL && i < pins->n_children; i++) {
        const lathe_toml_node *pin = pins->children[i];
        const lathe_place place = lathe_value_place(config->path, pin);
        if (pin->key == NULL)
            continue; /* an array: take_table has refused it, or it is empty */
        if (pin->kind != LATHE_TOML_STRING)
            lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL,
                            "plugins.pins.%s is %s, expected 64 hexadecimal digits", pin->key,
                            lathe_toml_kind_text(pin->kind));
        else if (lathe_registry_pin(registry, pin->key, pin->s) != LATHE_OK)
            lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL, "plugins.pins: %s",
                            lathe_error_message());
        else
            check_pinned(registry, pin, &place, diags);
    }
}

static lathe_status check_all(lathe_config *config, uint32_t kinds, lathe_registry *registry,
                              lathe_diags *diags)
{
    int32_t n_core = 0;
    const lathe_core_section *core = lathe_core_sections(&n_core);
    check_root(config, registry, diags);
    for (int32_t i = 0; i < n_core; i++)
        if (lathe_kind_id(core[i].name) == 0) /* [model]: with its plugin's keys */
            LATHE_TRY(check_core(config, &core[i], diags));
    LATHE_TRY(add_overrides(config, registry, diags));
    LATHE_TRY(add_paths(config, registry, diags));
    add_pins(config, registry, diags);
    for (int32_t kind = 1; kind < LATHE_N_KINDS; kind++)
        LATHE_TRY(lathe__config_part(config, kind, (kinds >> kind) & 1, registry, diags));
    LATHE_TRY(lathe__config_settle_rate(config));
    if (kinds & LATHE_CONFIG_FILES)
        lathe_config_check_files(config, kinds, diags);
    if (kinds & LATHE_CONFIG_MODEL)
        lathe_config_check_model(config, diags);
    if (kinds & LATHE_CONFIG_TRAIN)
        lathe_config_check_train(config, kinds, diags);
    lathe_diags_sort(diags);
    return lathe_diags_status(diags);
}

/* Fills a new configuration with the tree of a run file, its options, and `edits` or NULL. */
static lathe_status fill(lathe_config *config, const lathe_run_file *file,
                         const lathe_toml_node *root, const lathe_edits *edits, uint32_t kinds,
                         lathe_diags *diags)
{
    config->path = lathe_arena_strdup(&config->arena, file->path != NULL ? file->path : "");
    config->root = lathe__toml_copy(root, &config->arena);
    if (config->path == NULL || config->root == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: configuration");
    LATHE_TRY(lathe__config_edit(config, &file->options, diags));
    if (edits != NULL)
        LATHE_TRY(lathe__config_edit(config, edits, diags));
    LATHE_TRY(lathe__config_paths(config, diags));
    return check_all(config, kinds, config->registry, diags);
}

lathe_status lathe_config_make(lathe_run_file *file, const lathe_edits *edits, uint32_t kinds,
                               lathe_registry *registry, lathe_diags *diags, lathe_config **out)
{
    const lathe_toml_node *root = NULL;
    *out = NULL;
    LATHE_TRY(lathe_run_file_tree(file, &root));
    lathe_config *config = calloc(1, sizeof *config);
    if (config == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: configuration");
    config->is_other_method = (kinds & LATHE_CONFIG_OTHER_METHOD) != 0;
    config->registry = registry;
    const lathe_status status = fill(config, file, root, edits, kinds, diags);
    if (status != LATHE_OK) {
        lathe_config_destroy(config);
        return status;
    }
    *out = config;
    return LATHE_OK;
}

lathe_status lathe_config_load(const char *path, const lathe_override *overrides,
                               int64_t n_overrides, uint32_t kinds, lathe_registry *registry,
                               lathe_diags *diags, lathe_config **out)
{
    lathe_run_file *file = NULL;
    lathe_edits options = {.n = 0};
    *out = NULL;
    lathe_edits_options(&options, overrides, n_overrides);
    lathe_status status = lathe_run_file_create(path, &options, &file);
    if (status == LATHE_OK)
        status = lathe_config_make(file, NULL, kinds, registry, diags, out);
    lathe_run_file_destroy(file);
    lathe_edits_fini(&options);
    return status;
}

lathe_status lathe_config_of_edits(const lathe_edits *edits, uint32_t kinds,
                                   lathe_registry *registry, lathe_diags *diags, lathe_config **out)
{
    lathe_run_file *file = NULL;
    *out = NULL;
    LATHE_TRY(lathe_run_file_create(NULL, NULL, &file));
    const lathe_status status = lathe_config_make(file, edits, kinds, registry, diags, out);
    lathe_run_file_destroy(file);
    return status;
}

void lathe_config_destroy(lathe_config *config)
{
    if (config == NULL)
        return;
    lathe_arena_fini(&config->arena);
    free(config);
}

/* Resolves the tables of plugins: which plugin a kind's table names, and its values. */
#include <string.h>

#include "base/error.h"
#include "config/config_state.h"
#include "lathe/model.h"
#include "plug/kind.h"
#include "plug/schema_check.h"
#include "plug/schema_value.h"

static lathe_schema_scope scope_of(const lathe_config *config, int32_t kind,
                                   const lathe_toml_node *table, int32_t ignore_unknown)
{
    lathe_schema_scope scope = {.section = lathe_kind_name(kind),
                                .skipped = "name",
                                .place = {config->path, 0, 0},
                                .ignore_unknown = ignore_unknown};
    if (table != NULL)
        scope.place = lathe_key_place(config->path, table);
    return scope;
}

/* Adds the aliases of a model plugin's keys. In a model's table no key is required: vocab_size may
 * come from the tokenizer, and an alias may stand for a key. */
static int32_t add_aliases(const lathe_plugin *plugin, lathe_field *all, int32_t n)
{
    const lathe_model_v1 *table = plugin->table;
    const int32_t vocab = lathe_schema_index(all, n, "vocab_size");
    if (vocab >= 0)
        all[vocab].flags &= ~LATHE_FIELD_REQUIRED;
    for (int32_t i = 0; i < table->n_aliases; i++) {
        const int32_t at = lathe_schema_index(all, n, table->aliases[i].key);
        if (at < 0 || lathe_schema_index(all, n, table->aliases[i].alias) >= 0)
            continue;
        all[at].flags &= ~LATHE_FIELD_REQUIRED;
        all[n] = all[at];
        all[n].key = table->aliases[i].alias;
        all[n++].default_value = NULL;
    }
    return n;
}

/* The plugin's keys, then those that the core adds to its kind. plugin NULL: only the core's. */
static lathe_status all_fields(lathe_config *config, int32_t kind, const lathe_plugin *plugin,
                               const lathe_field **out, int32_t *out_n)
{
    int32_t n_extra = 0, n = plugin != NULL ? plugin->n_fields : 0;
    const int32_t n_plugin = n;
    const lathe_field *extra = lathe_core_kind_fields(kind, &n_extra);
    const int is_model = kind == LATHE_KIND_MODEL && plugin != NULL;
    const int32_t n_aliases = is_model ? ((const lathe_model_v1 *)plugin->table)->n_aliases : 0;
    *out = plugin != NULL ? plugin->fields : NULL;
    *out_n = n;
    if (n_extra == 0)
        return LATHE_OK;
    lathe_field *all =
        lathe_arena_alloc(&config->arena, (n + n_extra + n_aliases) * (int64_t)sizeof *all);
    if (all == NULL)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < n_plugin; i++)
        all[i] = plugin->fields[i];
    for (int32_t i = 0; i < n_extra; i++)
        if (lathe_schema_index(all, n_plugin, extra[i].key) < 0)
            all[n++] = extra[i];
    if (is_model)
        n = add_aliases(plugin, all, n);
    *out = all;
    *out_n = n;
    return LATHE_OK;
}

/* ---- the plugins of a kind that have a key ---- */

/* A kind, and the plugin whose table is checked. */
typedef struct siblings {
    lathe_registry *registry;
    int32_t kind;
    const char *name;
} siblings;

enum { MAX_SIBLINGS = 5 }; /* number of plugins that a message names */

/* lathe_schema_scope.others. */
static void put_owners(void *arg, const char *key, lathe_buffer *out)
{
    const siblings *all = arg;
    lathe_arena arena = LATHE_ARENA_INIT;
    const char **names = NULL;
    int64_t n = 0;
    int n_owners = 0;
    if (lathe_registry_names(all->registry, all->kind, &arena, &names, &n) != LATHE_OK)
        n = 0;
    for (int64_t i = 0; i < n && n_owners < MAX_SIBLINGS; i++) {
        const lathe_component *other = NULL;
        if (strcmp(names[i], all->name) == 0 ||
            lathe_registry_find(all->registry, all->kind, names[i], &other) != LATHE_OK ||
            lathe_schema_index(other->plugin->fields, other->plugin->n_fields, key) < 0)
            continue;
        if (n_owners++ == 0)
            lathe_buffer_printf(out, ": \"%s\" does not have it; a key '%s' is in \"%s\"",
                                all->name, key, names[i]);
        else
            lathe_buffer_printf(out, ", \"%s\"", names[i]);
    }
    lathe_error_clear(); /* errors of plugins that cannot be opened */
    lathe_arena_fini(&arena);
}

lathe_status lathe__config_values(lathe_config *config, int32_t kind, const lathe_toml_node *table,
                                  const lathe_component *component, int32_t ignore_unknown,
                                  lathe_registry *registry, lathe_diags *diags,
                                  struct lathe__section *out)
{
    const lathe_plugin *plugin = component != NULL ? component->plugin : NULL;
    lathe_value *values = NULL;
    lathe_schema_scope scope = scope_of(config, kind, table, ignore_unknown);
    siblings all = {registry, kind, plugin != NULL ? plugin->name : ""};
    if (registry != NULL) {
        scope.others = put_owners;
        scope.arg = &all;
    }
    *out = (struct lathe__section){.name = lathe_kind_name(kind), .table = table, .kind = kind};
    LATHE_TRY(all_fields(config, kind, plugin, &out->fields, &out->n_fields));
    LATHE_TRY(lathe_schema_check(&scope, table, out->fields, out->n_fields, &config->arena, diags,
                                 &values));
    out->values = values;
    return LATHE_OK;
}

lathe_status lathe__config_bind(lathe_config *config, int32_t kind,
                                const lathe_component *component, int32_t ignore_unknown,
                                lathe_registry *registry, lathe_diags *diags)
{
    const lathe_plugin *plugin = component != NULL ? component->plugin : NULL;
    lathe_part *part = &config->parts[kind];
    struct lathe__section checked, *section = NULL;
    const lathe_toml_node *table = lathe_toml_find(config->root, lathe_kind_name(kind));
    if (table != NULL && table->kind != LATHE_TOML_TABLE)
        table = NULL; /* already reported */
    LATHE_TRY(lathe__config_values(config, kind, table, component, ignore_unknown, registry, diags,
                                   &checked));
    for (int32_t i = 0; i < config->n_sections; i++)
        if (config->sections[i].kind == kind)
            section = &config->sections[i];
    if (section == NULL)
        section = &config->sections[config->n_sections++];
    *section = checked;
    part->component = component;
    part->values = checked.values;
    return plugin == NULL || checked.n_fields > plugin->n_fields
               ? lathe__config_tables(config, section, diags)
               : LATHE_OK;
}

/* Checks a key of a family or of "auto". If no candidate that has the key accepts the value, the
 * value is wrong, whichever candidate is selected later: the first candidate's error is
 * reported. */
static lathe_status check_union_value(lathe_config *config, const lathe_toml_node *node,
                                      const lathe_component **candidates, int64_t n,
                                      const char *section, lathe_diags *diags)
{
    char why[512] = "", other[512];
    const char *suggestion = NULL, *ignored = NULL;
    for (int64_t j = 0; j < n; j++) {
        const lathe_plugin *plugin = candidates[j]->plugin;
        const int32_t i = lathe_schema_index(plugin->fields, plugin->n_fields, node->key);
        const int first = why[0] == '\0';
        lathe_value value;
        if (i < 0)
            continue;
        const lathe_status status = lathe_value_from_toml(
            &plugin->fields[i], node, &config->arena, &value, first ? why : other,
            (int64_t)sizeof why, first ? &suggestion : &ignored);
        if (status == LATHE_OK || status == LATHE_E_NOMEM)
            return status;
    }
    const lathe_place place = lathe_value_place(config->path, node);
    lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, suggestion, "%s.%s %s", section, node->key,
                    why);
    return LATHE_OK;
}

/* For a family or "auto": at least one candidate must have each key. */
static lathe_status check_union(lathe_config *config, int32_t kind, const lathe_toml_node *table,
                                const lathe_component **candidates, int64_t n, lathe_diags *diags)
{
    const lathe_schema_scope scope = scope_of(config, kind, table, 0);
    int32_t n_fields = 0, at = 0;
    for (int64_t j = 0; j < n; j++)
        n_fields += candidates[j]->plugin->n_fields;
    lathe_field *all = lathe_arena_alloc(&config->arena, n_fields * (int64_t)sizeof *all);
    if (all == NULL)
        return LATHE_E_NOMEM;
    for (int64_t j = 0; j < n; j++)
        for (int32_t i = 0; i < candidates[j]->plugin->n_fields; i++)
            all[at++] = candidates[j]->plugin->fields[i];
    for (int64_t i = 0; i < table->n_children; i++) {
        const lathe_toml_node *node = table->children[i];
        if (strcmp(node->key, "name") == 0)
            continue;
        if (lathe_schema_index(all, n_fields, node->key) < 0)
            lathe_schema_unknown(&scope, node, all, n_fields, diags);
        else
            LATHE_TRY(check_union_value(config, node, candidates, n, scope.section, diags));
    }
    return LATHE_OK;
}

/* Kinds attention and device. "auto" without other keys opens no plugin; the run selects one
 * later. */
static lathe_status resolve_scored(lathe_config *config, int32_t kind, const lathe_toml_node *table,
                                   lathe_registry *registry, lathe_diags *diags)
{
    const lathe_part *part = &config->parts[kind];
    const lathe_component **candidates = NULL;
    int64_t n = 0, n_keys = table != NULL ? table->n_children : 0;
    if (lathe_toml_find(table, "name") != NULL)
        n_keys--;
    if (strcmp(part->name, "auto") == 0 && n_keys == 0)
        return LATHE_OK;
    LATHE_TRY(
        lathe_registry_candidates(registry, kind, part->name, &config->arena, &candidates, &n));
    if (n == 1 && strcmp(candidates[0]->plugin->name, part->name) == 0)
        return lathe__config_bind(config, kind, candidates[0], 0, registry, diags);
    return table != NULL ? check_union(config, kind, table, candidates, n, diags) : LATHE_OK;
}

static lathe_status resolve(lathe_config *config, int32_t kind, const lathe_toml_node *table,
                            lathe_registry *registry, lathe_diags *diags)
{
    const lathe_component *component = NULL;
    if (lathe_kind_is_scored(kind))
        return resolve_scored(config, kind, table, registry, diags);
    LATHE_TRY(lathe_registry_find(registry, kind, config->parts[kind].name, &component));
    const int32_t ignores = kind == LATHE_KIND_ADAPTER && config->is_other_method;
    return lathe__config_bind(config, kind, component, ignores, registry, diags);
}

/* Refuses keys beside a name that leaves the choice of the plugin, and of its settings, to the
 * run. */
static void refuse_planned_keys(const lathe_config *config, int32_t kind,
                                const lathe_toml_node *table, const lathe_toml_node *name,
                                lathe_diags *diags)
{
    const char *section = lathe_kind_name(kind), *planned = lathe_kind_planned(kind);
    for (int64_t i = 0; table != NULL && i < table->n_children; i++) {
        const lathe_toml_node *node = table->children[i];
        if (node == name)
            continue;
        const lathe_place place = lathe_key_place(config->path, node);
        lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL,
                        "%s.%s: %s.name = \"%s\" chooses the method and its settings: name a "
                        "method, or remove the key",
                        section, node->key, section, planned);
    }
}

/* Refuses keys in the table of a kind that is switched off, because nothing would read them. */
static void refuse_idle_keys(const lathe_config *config, int32_t kind, const lathe_toml_node *table,
                             const lathe_toml_node *name, lathe_diags *diags)
{
    const char *section = lathe_kind_name(kind);
    for (int64_t i = 0; table != NULL && i < table->n_children; i++) {
        const lathe_toml_node *node = table->children[i];
        if (node == name)
            continue;
        const lathe_place place = lathe_key_place(config->path, node);
        lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL,
                        name != NULL ? "%s.%s has no effect, because %s.name is \"%s\": name a "
                                       "plugin, or remove the key"
                                     : "%s.%s has no effect without %s.name: name a plugin, or "
                                       "remove the key%.0s",
                        section, node->key, section, lathe_kind_none(kind));
    }
}

lathe_status lathe__config_part(lathe_config *config, int32_t kind, int wanted,
                                lathe_registry *registry, lathe_diags *diags)
{
    lathe_part *part = &config->parts[kind];
    const lathe_toml_node *table = lathe_toml_find(config->root, lathe_kind_name(kind));
    if (table != NULL && table->kind != LATHE_TOML_TABLE)
        table = NULL; /* already reported */
    const lathe_toml_node *name = lathe_toml_find(table, "name");
    part->kind = kind;
    part->name = lathe_kind_default(kind);
    if (kind == LATHE_KIND_MODEL)
        return lathe__config_model(config, registry, diags);
    if (kind == LATHE_KIND_REWARD)
        return lathe__config_rewards(config, registry, diags);
    if (lathe_kind_chosen(kind) != NULL) {
        part->is_none = 1;
        if (table != NULL) {
            const lathe_place place = lathe_key_place(config->path, table);
            lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL,
                            "[%s] has no effect: %s; remove the table", lathe_kind_name(kind),
                            lathe_kind_chosen(kind));
        }
        return LATHE_OK;
    }
    if (name != NULL && name->kind != LATHE_TOML_STRING) {
        const lathe_place place = lathe_value_place(config->path, name);
        lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL, "%s.name is %s, expected a string",
                        lathe_kind_name(kind), lathe_toml_kind_text(name->kind));
        return LATHE_OK;
    }
    if (name != NULL)
        part->name = name->s;
    part->is_none = (table == NULL && !wanted) || (lathe_kind_none(kind) != NULL &&
                                                   strcmp(part->name, lathe_kind_none(kind)) == 0);
    if (part->is_none) {
        refuse_idle_keys(config, kind, table, name, diags);
        return LATHE_OK;
    }
    if (lathe_kind_planned(kind) != NULL && strcmp(part->name, lathe_kind_planned(kind)) == 0) {
        part->is_auto = 1;
        refuse_planned_keys(config, kind, table, name, diags);
        return LATHE_OK;
    }
    const lathe_status status = resolve(config, kind, table, registry, diags);
    if (status != LATHE_OK && status != LATHE_E_NOMEM) {
        lathe_config_add(config, diags, LATHE_DIAG_ERROR, lathe_kind_name(kind), "name", "%s",
                         lathe_error_message());
        return LATHE_OK;
    }
    return status;
}

lathe_status lathe_config_bind(lathe_config *config, int32_t kind, const lathe_component *component,
                               lathe_diags *diags, const lathe_value **out_values)
{
    const int64_t n_errors = diags->n_errors;
    if (config->parts[kind].component != component)
        LATHE_TRY(lathe__config_bind(config, kind, component, 1, NULL, diags));
    *out_values = config->parts[kind].values;
    return diags->n_errors > n_errors ? lathe_diags_status(diags) : LATHE_OK;
}

const char *lathe_config_idle_key(const lathe_config *config, int32_t kind, int32_t index)
{
    const lathe_toml_node *table = lathe_toml_find(config->root, lathe_kind_name(kind));
    const lathe_component *component = config->parts[kind].component;
    for (int64_t i = 0; table != NULL && component != NULL && i < table->n_children; i++) {
        const char *key = table->children[i]->key;
        const lathe_plugin *plugin = component->plugin;
        if (strcmp(key, "name") != 0 &&
            lathe_schema_index(plugin->fields, plugin->n_fields, key) < 0 && index-- == 0)
            return key;
    }
    return NULL;
}

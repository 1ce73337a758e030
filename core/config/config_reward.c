/* Resolves the rewards: a table [reward], or several tables [[reward]]. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "config/config_state.h"
#include "plug/kind.h"
#include "plug/schema_check.h"

enum { KIND = LATHE_KIND_REWARD };

const lathe_config_reward *lathe_config_rewards(const lathe_config *config, int32_t *out_n)
{
    *out_n = config->n_rewards;
    return config->rewards;
}

static const lathe_toml_node *table_at(const lathe_config *config, int64_t index)
{
    const lathe_toml_node *node = lathe_toml_find(config->root, lathe_kind_name(KIND));
    if (node == NULL || node->kind != LATHE_TOML_ARRAY)
        return node;
    return index < node->n_children ? node->children[index] : node;
}

/* Place of a key of the reward, or else of its table. */
static lathe_place where(const lathe_config *config, int32_t index, const char *key)
{
    const lathe_toml_node *table = table_at(config, index);
    const lathe_toml_node *node = lathe_toml_find(table, key);
    lathe_place place = {.file = config->path};
    if (node != NULL)
        place = lathe_value_place(config->path, node);
    else if (table != NULL)
        place = lathe_value_place(config->path, table);
    if (place.file[0] == '\0')
        place.file = "command line";
    return place;
}

lathe_place lathe_config_where_reward(const lathe_config *config, int32_t index, const char *path)
{
    const lathe_toml_node *table = table_at(config, index);
    const lathe_toml_node *node = path[0] != '\0' ? lathe__config_at(table, path) : NULL;
    return node != NULL && node != table ? lathe_value_place(config->path, node)
                                         : where(config, index, "name");
}

__attribute__((format(printf, 5, 6))) static void refuse(const lathe_config *config, int32_t index,
                                                         const char *key, lathe_diags *diags,
                                                         const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const lathe_place place = where(config, index, key);
    lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL, "%s", text);
}

/* The value of a key; NULL: unset. */
static const lathe_value *value_of(const struct lathe__section *section, const char *key)
{
    const int32_t i = lathe_schema_index(section->fields, section->n_fields, key);
    return i >= 0 && section->values[i].is_set ? &section->values[i] : NULL;
}

/* The core's keys belong to every reward, so that a plugin cannot have keys of these names. */
static int shadows(const lathe_config *config, int32_t index, const lathe_plugin *plugin,
                   lathe_diags *diags)
{
    int32_t n = 0;
    const lathe_field *own = lathe_core_kind_fields(KIND, &n);
    for (int32_t i = 0; i < n; i++)
        if (lathe_schema_index(plugin->fields, plugin->n_fields, own[i].key) >= 0) {
            refuse(config, index, "name", diags,
                   "reward \"%s\" declares the key %s, which belongs to the core: the plugin must "
                   "give it another name",
                   plugin->name, own[i].key);
            return 1;
        }
    return 0;
}

/* Finds the plugin; *out stays NULL if the table has an error, which is reported. */
static lathe_status find(lathe_config *config, int32_t index, const lathe_toml_node *table,
                         lathe_registry *registry, lathe_diags *diags, const lathe_component **out)
{
    const lathe_toml_node *name = lathe_toml_find(table, "name");
    *out = NULL;
    if (name->kind != LATHE_TOML_STRING) {
        refuse(config, index, "name", diags, "reward.name is %s, expected a string",
               lathe_toml_kind_text(name->kind));
        return LATHE_OK;
    }
    const lathe_status status = lathe_registry_find(registry, KIND, name->s, out);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK)
        refuse(config, index, "name", diags, "%s", lathe_error_message());
    else if (shadows(config, index, (*out)->plugin, diags))
        *out = NULL;
    return LATHE_OK;
}

static void check_labels(const lathe_config *config, lathe_diags *diags)
{
    const lathe_config_reward *r = config->rewards;
    for (int32_t i = 0; i < config->n_rewards; i++)
        for (int32_t k = 0; k < i; k++)
            if (r[i].label != NULL && r[k].label != NULL && strcmp(r[i].label, r[k].label) == 0) {
                refuse(config, i, "label", diags,
                       "two rewards have the label \"%s\"; give each a reward.label of its own",
                       r[i].label);
                break;
            }
}

/* Checks one table and fills rewards[index]. */
static lathe_status take(lathe_config *config, int32_t index, const lathe_toml_node *table,
                         lathe_registry *registry, lathe_diags *diags)
{
    struct lathe__section *section = &config->reward_sections[index];
    lathe_config_reward *reward = &config->rewards[index];
    const lathe_toml_node *name = lathe_toml_find(table, "name");
    const lathe_component *component = NULL;
    reward->part.kind = KIND;
    reward->part.name = name != NULL && name->kind == LATHE_TOML_STRING ? name->s : "model";
    if (name != NULL)
        LATHE_TRY(find(config, index, table, registry, diags, &component));
    if (name != NULL && component == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe__config_values(config, KIND, table, component, 0, registry, diags, section));
    const lathe_value *model = value_of(section, "model"), *label = value_of(section, "label");
    const lathe_value *weight = value_of(section, "weight");
    const lathe_value *timeout = value_of(section, "timeout_seconds");
    if ((name != NULL) == (model != NULL))
        refuse(config, index, model != NULL ? "model" : "name", diags,
               model != NULL
                   ? "reward.name and reward.model are both set; a reward is either a plugin or a "
                     "reward model: take one of them out, or write two tables [[reward]]"
                   : "the reward has neither reward.name, a plugin (lathe ls reward), nor "
                     "reward.model, the folder of a reward model");
    const lathe_value *retries = value_of(section, "retries");
    if (model != NULL && retries != NULL && retries->is_explicit)
        refuse(config, index, "retries", diags,
               "reward.retries has no effect on a reward model: take it out");
    if (model != NULL && timeout != NULL && timeout->is_explicit)
        refuse(config, index, "timeout_seconds", diags,
               "reward.timeout_seconds has no effect on a reward model: take it out");
    if (weight != NULL && weight->f == 0.0)
        refuse(config, index, "weight", diags,
               "reward.weight is 0, so the reward has no effect: take its table out");
    if (label != NULL && label->s[0] == '\0')
        refuse(config, index, "label", diags, "reward.label is empty; expected a name");
    reward->part.component = component;
    reward->part.values = section->values;
    reward->model = model != NULL ? model->s : NULL;
    reward->label = label != NULL ? label->s : reward->part.name;
    reward->weight = weight != NULL ? weight->f : 1.0;
    reward->retries = retries != NULL ? (int32_t)retries->i : 0;
    reward->timeout_seconds = timeout != NULL ? timeout->f : 60.0;
    return LATHE_OK;
}

/* A single table also serves lathe_config_get(config, "reward", key). */
static void record_single(lathe_config *config)
{
    if (config->reward_sections[0].name == NULL)
        return; /* the table has errors */
    config->sections[config->n_sections++] = config->reward_sections[0];
    config->parts[KIND] = config->rewards[0].part;
}

lathe_status lathe__config_rewards(lathe_config *config, lathe_registry *registry,
                                   lathe_diags *diags)
{
    const lathe_toml_node *node = lathe_toml_find(config->root, lathe_kind_name(KIND));
    const lathe_toml_node *name = lathe_toml_find(node, "name");
    const int is_array = node != NULL && node->kind == LATHE_TOML_ARRAY;
    const int64_t n = is_array ? node->n_children : 1;
    config->parts[KIND].name = lathe_kind_default(KIND);
    config->parts[KIND].is_none = 1;
    if (node == NULL || n == 0 || (!is_array && node->kind != LATHE_TOML_TABLE))
        return LATHE_OK;
    if (name != NULL && name->kind == LATHE_TOML_STRING && strcmp(name->s, "none") == 0) {
        if (node->n_children > 1)
            refuse(config, 0, "name", diags,
                   "the keys of [reward] have no effect, because reward.name is \"none\": name a "
                   "plugin, or take the table out");
        return LATHE_OK;
    }
    config->rewards = lathe_arena_alloc(&config->arena, n * (int64_t)sizeof *config->rewards);
    config->reward_sections =
        lathe_arena_alloc(&config->arena, n * (int64_t)sizeof *config->reward_sections);
    if (config->rewards == NULL || config->reward_sections == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        const lathe_toml_node *table = is_array ? node->children[i] : node;
        config->n_rewards = (int32_t)i + 1;
        if (table->kind != LATHE_TOML_TABLE)
            refuse(config, (int32_t)i, NULL, diags,
                   "reward[%d] is %s, expected a table: write [[reward]] before the keys of each "
                   "reward",
                   (int)i, lathe_toml_kind_text(table->kind));
        else
            LATHE_TRY(take(config, (int32_t)i, table, registry, diags));
    }
    check_labels(config, diags);
    if (!is_array)
        record_single(config);
    config->parts[KIND].is_none = 0;
    return LATHE_OK;
}

void lathe__config_rewards_json(const lathe_config *config, lathe_buffer *out)
{
    lathe_buffer_puts(out, ",\n  \"reward\": {\"list\": [");
    for (int32_t i = 0; i < config->n_rewards; i++) {
        const lathe_part *part = &config->rewards[i].part;
        const struct lathe__section *section = &config->reward_sections[i];
        lathe_buffer_printf(out, "%s{\"name\": ", i > 0 ? ", " : "");
        lathe_buffer_json_string(out, part->name);
        if (part->component != NULL) {
            lathe_buffer_puts(out, ", \"version\": ");
            lathe_buffer_json_string(out, part->component->plugin->version);
        }
        for (int32_t k = 0; k < section->n_fields; k++) {
            if (!section->values[k].is_set)
                continue;
            lathe_buffer_puts(out, ", ");
            lathe_buffer_json_string(out, section->fields[k].key);
            lathe_buffer_puts(out, ": ");
            lathe_value_json(&section->values[k], out);
        }
        lathe_buffer_puts(out, "}");
    }
    lathe_buffer_puts(out, "]}");
}

/* Resolves the paths of a configuration once, so that its readers need not: joins relative ones to
 * their folder, removes empty ones, and replaces the folder of a run (DIR, DIR/best, DIR/latest),
 * where a key takes a model, by the checkpoint that it means.
 *
 * An empty text of a path without a default is no path: the key counts as absent, so that the
 * command line can remove a key of the file (--teacher.path ''). For a path with a default, the
 * code that uses it decides about an empty text.
 *
 * A path in the run file is relative to the folder of that file, wherever the command is started. A
 * path on the command line is relative to the current folder, as with every command. Defaults
 * ("out") are treated as paths in the file. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/checkpoint_path.h"
#include "base/error.h"
#include "config/config_state.h"
#include "plug/schema_check.h"

enum { MAX_WORDS = 3 };
/* Which paths of a key are followed: none, DIR/best and DIR/latest, or also the folder of a run. A
 * run resumes from the folder of a run as a whole, since it may try several checkpoints of it. */
enum { FOLLOW_NONE, FOLLOW_POINTER, FOLLOW_ALL };

/* Keys that contain a path, and words that are not paths but have a special meaning in such a
 * key. */
static const struct {
    const char *section, *key, *words[MAX_WORDS];
    int32_t has_default, follow; /* FOLLOW_* */
} keys[] = {
    {"model", "path", {NULL, NULL}, 0, FOLLOW_ALL},
    {"model", "adapter", {NULL, NULL}, 0, FOLLOW_ALL},
    {"model", "reference_adapter", {NULL, NULL}, 0, FOLLOW_ALL},
    {"tokenizer", "path", {"bytes", NULL}, 0, FOLLOW_ALL},
    {"teacher", "path", {NULL, NULL}, 0, FOLLOW_ALL},
    {"teacher", "stored", {NULL, NULL}, 0, FOLLOW_NONE},
    {"data", "cache_dir", {NULL, NULL}, 1, FOLLOW_NONE},
    {"data", "chat_template", {NULL, NULL}, 0, FOLLOW_ALL},
    {"checkpoint", "dir", {NULL, NULL}, 1, FOLLOW_NONE},
    {"checkpoint", "resume", {"auto", "never", "restart"}, 1, FOLLOW_POINTER},
    {"generate", "draft", {NULL, NULL}, 0, FOLLOW_ALL},
    {"plugins", "paths", {NULL, NULL}, 0, FOLLOW_NONE},
};

/* Removes a key from a table if it is an empty text. */
static void drop_empty(lathe_toml_node *table, const char *key)
{
    const lathe_toml_node *found = lathe_toml_find(table, key);
    int64_t n = 0;
    if (found == NULL || found->kind != LATHE_TOML_STRING || found->s[0] != '\0')
        return;
    for (int64_t i = 0; i < table->n_children; i++)
        if (table->children[i] != found)
            table->children[n++] = table->children[i];
    table->n_children = n;
}

/* Length of "folder/" before the file's name; 0: the file is in the current folder, or there is
 * none. */
static size_t folder_length(const lathe_config *config)
{
    const char *slash = strrchr(config->path, '/');
    return slash != NULL ? (size_t)(slash - config->path) + 1 : 0;
}

const char *lathe_config_written(const lathe_config *config, const char *path)
{
    const size_t n = folder_length(config);
    return strncmp(path, config->path, n) == 0 ? path + n : path;
}

static lathe_status join(lathe_config *config, const char **path)
{
    const size_t n = folder_length(config);
    if (n == 0 || *path == NULL || (*path)[0] == '/' || (*path)[0] == '\0')
        return LATHE_OK;
    *path = lathe_arena_printf(&config->arena, "%.*s%s", (int)n, config->path, *path);
    return *path != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

static int is_word(const char *text, const char *const words[MAX_WORDS])
{
    for (int i = 0; i < MAX_WORDS; i++)
        if (words[i] != NULL && strcmp(text, words[i]) == 0)
            return 1;
    return 0;
}

static lathe_status join_node(lathe_config *config, lathe_toml_node *node,
                              const char *const words[MAX_WORDS])
{
    if (node == NULL || node->origin != NULL)
        return LATHE_OK;
    if (node->kind == LATHE_TOML_ARRAY)
        for (int64_t i = 0; i < node->n_children; i++)
            LATHE_TRY(join_node(config, node->children[i], words));
    if (node->kind != LATHE_TOML_STRING || is_word(node->s, words))
        return LATHE_OK;
    return join(config, &node->s);
}

/* Replaces a path to the folder of a run by the checkpoint that it means. */
static lathe_status follow(lathe_config *config, lathe_toml_node *node, int32_t how,
                           const char *const words[MAX_WORDS], const char *name, lathe_diags *diags)
{
    if (node == NULL || node->kind != LATHE_TOML_STRING || node->s[0] == '\0' ||
        how == FOLLOW_NONE || is_word(node->s, words))
        return LATHE_OK;
    const char *path = NULL;
    const lathe_status status = how == FOLLOW_ALL
                                    ? lathe_checkpoint_resolve(&config->arena, node->s, &path)
                                    : lathe_pointer_follow(&config->arena, node->s, &path);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status == LATHE_OK) {
        node->s = path;
        return LATHE_OK;
    }
    const lathe_place place = lathe_value_place(config->path, node);
    lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL, "%s: %s", name, lathe_error_message());
    lathe_error_clear();
    return LATHE_OK;
}

/* data.datasets, data.validation: a table, or an array of tables. */
static lathe_status join_datasets(lathe_config *config, const char *key)
{
    static const char *const none[MAX_WORDS] = {NULL};
    lathe_toml_node *sets = lathe_toml_find(lathe_toml_find(config->root, "data"), key);
    if (sets == NULL)
        return LATHE_OK;
    if (sets->kind == LATHE_TOML_TABLE)
        return join_node(config, lathe_toml_find(sets, "path"), none);
    for (int64_t i = 0; sets->kind == LATHE_TOML_ARRAY && i < sets->n_children; i++)
        LATHE_TRY(join_node(config, lathe_toml_find(sets->children[i], "path"), none));
    return LATHE_OK;
}

static lathe_status join_reward(lathe_config *config, lathe_toml_node *table, lathe_diags *diags)
{
    static const char *const none[MAX_WORDS] = {NULL};
    lathe_toml_node *model = lathe_toml_find(table, "model");
    LATHE_TRY(join_node(config, model, none));
    return follow(config, model, FOLLOW_ALL, none, "reward.model", diags);
}

/* reward.model of [reward], or of each [[reward]]. */
static lathe_status join_rewards(lathe_config *config, lathe_diags *diags)
{
    lathe_toml_node *rewards = lathe_toml_find(config->root, "reward");
    if (rewards == NULL)
        return LATHE_OK;
    drop_empty(rewards, "model");
    for (int64_t i = 0; rewards->kind == LATHE_TOML_ARRAY && i < rewards->n_children; i++)
        LATHE_TRY(join_reward(config, rewards->children[i], diags));
    return join_reward(config, rewards, diags);
}

lathe_status lathe__config_paths(lathe_config *config, lathe_diags *diags)
{
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        lathe_toml_node *table = lathe_toml_find(config->root, keys[i].section);
        char name[64];
        if (!keys[i].has_default)
            drop_empty(table, keys[i].key);
        lathe_toml_node *node = lathe_toml_find(table, keys[i].key);
        LATHE_TRY(join_node(config, node, keys[i].words));
        (void)snprintf(name, sizeof name, "%s.%s", keys[i].section, keys[i].key);
        LATHE_TRY(follow(config, node, keys[i].follow, keys[i].words, name, diags));
    }
    LATHE_TRY(join_rewards(config, diags));
    LATHE_TRY(join_datasets(config, "datasets"));
    return join_datasets(config, "validation");
}

lathe_status lathe__config_default_paths(lathe_config *config, const char *section,
                                         lathe_value *values)
{
    const lathe_core_section *core = lathe_core_section_find(section);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(keys[i].section, section) != 0)
            continue;
        const int32_t at = lathe_schema_index(core->fields, core->n_fields, keys[i].key);
        lathe_value *value = at >= 0 ? &values[at] : NULL;
        if (value != NULL && value->is_set && !value->is_explicit &&
            value->type == LATHE_T_STRING && keys[i].words[0] == NULL)
            LATHE_TRY(join(config, &value->s));
    }
    return LATHE_OK;
}

static lathe_status move(lathe_config *config, const lathe_value *value, lathe_toml_node *node,
                         const char *path, const char **out)
{
    lathe_value *own = (lathe_value *)(uintptr_t)value; /* in the arena of the configuration */
    *out = lathe_arena_strdup(&config->arena, path);
    if (*out == NULL)
        return LATHE_E_NOMEM;
    if (own != NULL)
        own->s = *out;
    if (node != NULL && node->kind == LATHE_TOML_STRING)
        node->s = *out;
    return LATHE_OK;
}

lathe_status lathe_config_move_path(lathe_config *config, const char *section, const char *key,
                                    const char *path)
{
    const char *moved;
    return move(config, lathe_config_get(config, section, key),
                lathe_toml_find(lathe_toml_find(config->root, section), key), path, &moved);
}

lathe_status lathe_config_move_reward(lathe_config *config, int32_t index, const char *path)
{
    const struct lathe__section *section = &config->reward_sections[index];
    const int32_t at = lathe_schema_index(section->fields, section->n_fields, "model");
    return move(config, at >= 0 ? &section->values[at] : NULL, NULL, path,
                &config->rewards[index].model);
}

/* Resolves relative paths of a configuration, and takes out those that are empty.
 *
 * An empty text of a path without a default is no path: the key counts as absent, so that the
 * command line can take out a key of the file (--teacher.path ''). Where there is a default, an
 * empty text is judged where the key is used.
 *
 * A path in the run file is relative to the folder of that file, wherever the command is started. A
 * path on the command line is relative to the current folder, as with every command. Defaults
 * ("out") are treated as paths in the file. */
#include <string.h>

#include "base/error.h"
#include "config/config_state.h"
#include "plug/schema.h"

enum { MOST_WORDS = 3 };

/* Keys that contain a path, and words that are not paths but have a special meaning in such a
 * key. */
static const struct {
    const char *section, *key, *words[MOST_WORDS];
    int32_t has_default;
} keys[] = {
    {"model", "path", {NULL, NULL}, 0},
    {"model", "adapter", {NULL, NULL}, 0},
    {"model", "reference_adapter", {NULL, NULL}, 0},
    {"tokenizer", "path", {"bytes", NULL}, 0},
    {"teacher", "path", {NULL, NULL}, 0},
    {"teacher", "stored", {NULL, NULL}, 0},
    {"data", "cache_dir", {NULL, NULL}, 1},
    {"data", "chat_template", {NULL, NULL}, 0},
    {"checkpoint", "dir", {NULL, NULL}, 1},
    {"checkpoint", "resume", {"auto", "never", "restart"}, 1},
    {"generate", "draft", {NULL, NULL}, 0},
    {"plugins", "paths", {NULL, NULL}, 0},
};

/* Takes a key out of a table if it is an empty text. */
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

static lathe_status join(lathe_config *config, const char **path)
{
    const size_t n = folder_length(config);
    if (n == 0 || *path == NULL || (*path)[0] == '/' || (*path)[0] == '\0')
        return LATHE_OK;
    *path = lathe_arena_printf(&config->arena, "%.*s%s", (int)n, config->path, *path);
    return *path != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

static int is_word(const char *text, const char *const words[MOST_WORDS])
{
    for (int i = 0; i < MOST_WORDS; i++)
        if (words[i] != NULL && strcmp(text, words[i]) == 0)
            return 1;
    return 0;
}

static lathe_status join_node(lathe_config *config, lathe_toml_node *node,
                              const char *const words[MOST_WORDS])
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

/* data.datasets, data.validation: a table, or an array of tables. */
static lathe_status join_datasets(lathe_config *config, const char *key)
{
    static const char *const none[MOST_WORDS] = {NULL};
    lathe_toml_node *sets = lathe_toml_find(lathe_toml_find(config->root, "data"), key);
    if (sets == NULL)
        return LATHE_OK;
    if (sets->kind == LATHE_TOML_TABLE)
        return join_node(config, lathe_toml_find(sets, "path"), none);
    for (int64_t i = 0; sets->kind == LATHE_TOML_ARRAY && i < sets->n_children; i++)
        LATHE_TRY(join_node(config, lathe_toml_find(sets->children[i], "path"), none));
    return LATHE_OK;
}

/* reward.model of [reward], or of each [[reward]]. */
static lathe_status join_rewards(lathe_config *config)
{
    static const char *const none[MOST_WORDS] = {NULL};
    lathe_toml_node *rewards = lathe_toml_find(config->root, "reward");
    if (rewards == NULL)
        return LATHE_OK;
    drop_empty(rewards, "model");
    for (int64_t i = 0; rewards->kind == LATHE_TOML_ARRAY && i < rewards->n_children; i++)
        LATHE_TRY(join_node(config, lathe_toml_find(rewards->children[i], "model"), none));
    return join_node(config, lathe_toml_find(rewards, "model"), none);
}

lathe_status lathe__config_paths(lathe_config *config)
{
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        lathe_toml_node *table = lathe_toml_find(config->root, keys[i].section);
        if (!keys[i].has_default)
            drop_empty(table, keys[i].key);
        LATHE_TRY(join_node(config, lathe_toml_find(table, keys[i].key), keys[i].words));
    }
    LATHE_TRY(join_rewards(config));
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

/* Puts settings, those of the command line and others, into the copy of the file's tree. */
#include <string.h>

#include "base/error.h"
#include "config/config_file_state.h"
#include "config/config_state.h"

/* The table at table[key], created if missing. NULL with *status set: out of memory, or not a
 * table. */
static lathe_toml_node *child_table(lathe_config *config, lathe_toml_node *table, const char *key,
                                    const char *origin, lathe_status *status)
{
    lathe_toml_node *child = lathe_toml_find(table, key);
    if (child != NULL) {
        *status = child->kind == LATHE_TOML_TABLE ? LATHE_OK : LATHE_E_CONFIG;
        return child->kind == LATHE_TOML_TABLE ? child : NULL;
    }
    child = lathe_arena_alloc(&config->arena, (int64_t)sizeof *child);
    *status = LATHE_E_NOMEM;
    if (child == NULL)
        return NULL;
    child->kind = LATHE_TOML_TABLE;
    child->key = key;
    child->origin = origin;
    *status = lathe_toml_set(table, child, &config->arena);
    return *status == LATHE_OK ? child : NULL;
}

/* Refuses a part of a key that is no table. `there`: what it is. */
static void refuse_part(const lathe_toml_node *there, const char *key, const lathe_place *place,
                        lathe_diags *diags)
{
    if (there->kind == LATHE_TOML_ARRAY && there->n_children > 0)
        lathe_diags_add(diags, LATHE_DIAG_ERROR, place, NULL,
                        "'%s' is an array of tables, which the command line cannot change; name an "
                        "element of it, %s.0 to %s.%lld",
                        key, key, key, (long long)there->n_children - 1);
    else
        lathe_diags_add(diags, LATHE_DIAG_ERROR, place, NULL, "'%s' is not a table", key);
}

/* The table that the number at *io_at ("0.model") names in an array of tables; *io_at is then after
 * it. NULL: it is no number of an element. */
static lathe_toml_node *element(const lathe_toml_node *array, const char **io_at)
{
    const size_t n = strspn(*io_at, "0123456789");
    int64_t index = 0;
    if (array == NULL || array->kind != LATHE_TOML_ARRAY || n == 0 || n > 9 || (*io_at)[n] != '.')
        return NULL;
    for (size_t i = 0; i < n; i++)
        index = index * 10 + ((*io_at)[i] - '0');
    if (index >= array->n_children || array->children[index]->kind != LATHE_TOML_TABLE)
        return NULL;
    *io_at += n + 1;
    return array->children[index];
}

static lathe_status apply(lathe_config *config, const lathe_edit *edit, lathe_diags *diags)
{
    lathe_arena *arena = &config->arena;
    const char *at = lathe_arena_strdup(arena, edit->key);
    const char *origin = lathe_arena_strdup(arena, edit->value->origin);
    lathe_toml_node *table = config->root;
    if (at == NULL || origin == NULL)
        return LATHE_E_NOMEM;
    const lathe_place place = {.file = origin};
    for (const char *dot = strchr(at, '.'); dot != NULL; dot = strchr(at, '.')) {
        lathe_status status = LATHE_OK;
        const char *key = lathe_arena_strndup(arena, at, dot - at);
        if (key == NULL)
            return LATHE_E_NOMEM;
        const lathe_toml_node *there = lathe_toml_find(table, key);
        at = dot + 1;
        lathe_toml_node *one = element(there, &at);
        table = one != NULL ? one : child_table(config, table, key, origin, &status);
        if (one == NULL && status == LATHE_E_CONFIG)
            refuse_part(there, key, &place, diags);
        if (table == NULL)
            return status == LATHE_E_CONFIG ? LATHE_OK : status;
    }
    if (table == config->root || *at == '\0') {
        lathe_diags_add(diags, LATHE_DIAG_ERROR, &place, NULL,
                        "expected --section.key value, such as --optimizer.lr 2e-5");
        return LATHE_OK;
    }
    lathe_toml_node *node = lathe__toml_copy(edit->value, arena);
    if (node == NULL)
        return LATHE_E_NOMEM;
    node->key = at;
    return lathe_toml_set(table, node, arena);
}

lathe_status lathe__config_edit(lathe_config *config, const lathe_edits *edits, lathe_diags *diags)
{
    for (int32_t i = 0; i < edits->n; i++)
        LATHE_TRY(apply(config, &edits->list[i], diags));
    return edits->status;
}

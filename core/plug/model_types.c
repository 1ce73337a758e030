/* Finds the plugin that serves a model_type. */
#include "plug/model_types.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plug/schema_check.h"

const lathe_model_type *lathe_model_type_of(const lathe_plugin *plugin, const char *model_type)
{
    const lathe_model_v1 *table = plugin->table;
    for (int32_t i = 0; i < table->n_types; i++)
        if (strcmp(table->types[i].model_type, model_type) == 0)
            return &table->types[i];
    return NULL;
}

/* All plugins of the kind. If there are none, this is not an error here; the caller reports it. */
static lathe_status families(lathe_registry *registry, lathe_arena *arena,
                             const lathe_component ***out, int64_t *out_n)
{
    *out_n = 0;
    const lathe_status status =
        lathe_registry_candidates(registry, LATHE_KIND_MODEL, "auto", arena, out, out_n);
    if (status != LATHE_E_NOT_FOUND)
        return status;
    lathe_error_clear();
    *out_n = 0;
    return LATHE_OK;
}

lathe_status lathe_model_type_find(lathe_registry *registry, const char *model_type,
                                   const lathe_component **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_component **list = NULL;
    int64_t n = 0;
    *out = NULL;
    lathe_status status = families(registry, &arena, &list, &n);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        if (lathe_model_type_of(list[i]->plugin, model_type) == NULL)
            continue;
        if (*out == NULL || strcmp(list[i]->plugin->name, model_type) == 0)
            *out = list[i];
    }
    lathe_arena_fini(&arena);
    return status;
}

int32_t lathe_model_n_wrappers(const lathe_model_v1 *table)
{
    return LATHE_HAS(table, wrappers) && LATHE_HAS(table, n_wrappers) ? table->n_wrappers : 0;
}

/* Looks for the wrapper in one plugin; keeps the first match that has a family. */
static void find_wrapper(const lathe_component *family, const char *model_type, const char *inner,
                         lathe_wrapper_match *out)
{
    const lathe_model_v1 *table = family->plugin->table;
    for (int32_t i = 0; i < lathe_model_n_wrappers(table) && out->family == NULL; i++) {
        const lathe_model_wrapper *w = &table->wrappers[i];
        if (strcmp(w->model_type, model_type) != 0)
            continue;
        const char *text = inner != NULL ? inner : w->assumed;
        const char *served = w->serves != NULL ? w->serves : text;
        out->wrapper = w;
        out->text_type = text != NULL ? text : served;
        out->type = served != NULL ? lathe_model_type_of(family->plugin, served) : NULL;
        out->family = out->type != NULL ? family : NULL;
    }
}

lathe_status lathe_model_wrapper_find(lathe_registry *registry, const lathe_component *only,
                                      const char *model_type, const char *inner,
                                      lathe_wrapper_match *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_component **list = &only;
    int64_t n = 1;
    *out = (lathe_wrapper_match){.wrapper = NULL};
    const lathe_status status = only == NULL ? families(registry, &arena, &list, &n) : LATHE_OK;
    for (int64_t i = 0; i < n && status == LATHE_OK && out->family == NULL; i++)
        find_wrapper(list[i], model_type, inner, out);
    lathe_arena_fini(&arena);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

lathe_status lathe_model_type_names(lathe_registry *registry, int32_t with_wrappers,
                                    lathe_arena *arena, const char ***out, int64_t *out_n)
{
    const lathe_component **list = NULL;
    int64_t n = 0, n_types = 0, n_kept = 0;
    LATHE_TRY(families(registry, arena, &list, &n));
    for (int64_t i = 0; i < n; i++)
        n_types += ((const lathe_model_v1 *)list[i]->plugin->table)->n_types +
                   lathe_model_n_wrappers(list[i]->plugin->table);
    const char **names = lathe_arena_alloc(arena, (n_types + 1) * (int64_t)sizeof *names);
    if (names == NULL)
        return LATHE_E_NOMEM;
    n_types = 0;
    for (int64_t i = 0; i < n; i++) {
        const lathe_model_v1 *table = list[i]->plugin->table;
        for (int32_t k = 0; k < table->n_types; k++)
            names[n_types++] = table->types[k].model_type;
        for (int32_t k = 0; with_wrappers && k < lathe_model_n_wrappers(table); k++)
            names[n_types++] = table->wrappers[k].model_type;
    }
    if (n_types > 0)
        qsort((void *)names, (size_t)n_types, sizeof *names, by_name);
    for (int64_t i = 0; i < n_types; i++)
        if (n_kept == 0 || strcmp(names[n_kept - 1], names[i]) != 0)
            names[n_kept++] = names[i];
    *out = names;
    *out_n = n_kept;
    return LATHE_OK;
}

int lathe_model_plugin_has_key(const lathe_plugin *plugin, const char *key)
{
    const lathe_model_v1 *table = plugin->table;
    if (lathe_schema_index(plugin->fields, plugin->n_fields, key) >= 0)
        return 1;
    for (int32_t i = 0; i < table->n_aliases; i++)
        if (strcmp(table->aliases[i].alias, key) == 0)
            return 1;
    return 0;
}

int lathe_model_key_is_known(lathe_registry *registry, const char *key)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_component **list = NULL;
    int64_t n = 0;
    int known = 0;
    if (families(registry, &arena, &list, &n) != LATHE_OK)
        n = 0;
    for (int64_t i = 0; i < n; i++)
        known |= lathe_model_plugin_has_key(list[i]->plugin, key);
    lathe_arena_fini(&arena);
    return known;
}

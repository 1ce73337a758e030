/* The registry: finding, opening and remembering plugins. Search folders are in search_path.c. */
#include "plug/registry.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "plug/kind.h"
#include "plug/registry_state.h"
#include "plug/so.h"
#include "plug/suggest.h"

lathe_status lathe_registry_create(lathe_registry **out)
{
    *out = NULL;
    lathe_registry *registry = calloc(1, sizeof *registry);
    if (registry == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: registry");
    const lathe_status status = lathe__search_path_init(registry);
    if (status != LATHE_OK) {
        lathe_registry_destroy(registry);
        return status;
    }
    *out = registry;
    return LATHE_OK;
}

void lathe_registry_destroy(lathe_registry *registry)
{
    if (registry == NULL)
        return;
    lathe_arena_fini(&registry->arena);
    free(registry->items);
    free(registry->refusals);
    free(registry);
}

lathe_status lathe__registry_refuse(lathe_registry *registry, int32_t kind, int32_t is_note,
                                    const char *path, const char *reason)
{
    for (int64_t i = 0; i < registry->n_refusals; i++)
        if (strcmp(registry->refusals[i].path, path) == 0)
            return LATHE_OK;
    const size_t bytes = (size_t)(registry->n_refusals + 1) * sizeof *registry->refusals;
    lathe_refusal *grown = realloc(registry->refusals, bytes);
    if (grown == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: refusals");
    registry->refusals = grown;
    lathe_refusal *refusal = &grown[registry->n_refusals];
    refusal->kind = kind;
    refusal->is_note = is_note;
    refusal->path = lathe_arena_strdup(&registry->arena, path);
    refusal->reason = lathe_arena_strdup(&registry->arena, reason);
    if (refusal->path == NULL || refusal->reason == NULL)
        return LATHE_E_NOMEM;
    registry->n_refusals++;
    return LATHE_OK;
}

lathe_status lathe_registry_pin(lathe_registry *registry, const char *kind_and_name,
                                const char *hex)
{
    if (strlen(hex) != 64 || strspn(hex, "0123456789abcdefABCDEF") != 64)
        return lathe_error(LATHE_E_ARG, "pin of %s is '%s', expected 64 hexadecimal digits",
                           kind_and_name, hex);
    const char *slash = strchr(kind_and_name, '/');
    lathe_arena *arena = &registry->arena;
    const char *kind =
        lathe_arena_strndup(arena, kind_and_name, slash != NULL ? slash - kind_and_name : 0);
    struct lathe__pin *pin = lathe_arena_alloc(arena, sizeof *pin);
    if (kind == NULL || pin == NULL)
        return LATHE_E_NOMEM;
    pin->kind = lathe_kind_id(kind);
    if (pin->kind == 0)
        return lathe_error(LATHE_E_ARG, "pin '%s': expected KIND/NAME, such as optimizer/adamw",
                           kind_and_name);
    pin->name = lathe_arena_strdup(arena, slash + 1);
    pin->hex = lathe_arena_strdup(arena, hex);
    if (pin->name == NULL || pin->hex == NULL)
        return LATHE_E_NOMEM;
    pin->next = registry->pins;
    registry->pins = pin;
    return LATHE_OK;
}

static const char *pin_of(const lathe_registry *registry, int32_t kind, const char *name)
{
    for (const struct lathe__pin *pin = registry->pins; pin != NULL; pin = pin->next)
        if (pin->kind == kind && strcmp(pin->name, name) == 0)
            return pin->hex;
    return NULL;
}

static const lathe_component *opened(const lathe_registry *registry, int32_t kind, const char *name)
{
    for (int64_t i = 0; i < registry->n_items; i++)
        if (registry->items[i]->plugin->kind == kind &&
            strcmp(registry->items[i]->plugin->name, name) == 0)
            return registry->items[i];
    return NULL;
}

static lathe_status add(lathe_registry *registry, const lathe_plugin *plugin, const char *path,
                        const lathe_component **out)
{
    const size_t bytes = (size_t)(registry->n_items + 1) * sizeof *registry->items;
    lathe_component **grown = realloc(registry->items, bytes);
    if (grown == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: plugins");
    registry->items = grown;
    lathe_component *component = lathe_arena_alloc(&registry->arena, sizeof *component);
    if (component == NULL || (component->path = lathe_arena_strdup(&registry->arena, path)) == NULL)
        return LATHE_E_NOMEM;
    component->plugin = plugin;
    registry->items[registry->n_items++] = component;
    *out = component;
    return LATHE_OK;
}

/* Opens one file and records the refusal when there is one. */
static lathe_status open_at(lathe_registry *registry, int32_t kind, const char *name,
                            const char *path, const lathe_component **out)
{
    const lathe_plugin *plugin = NULL;
    const lathe_status status =
        lathe_so_open(path, kind, name, pin_of(registry, kind, name), &plugin);
    if (status == LATHE_OK)
        return add(registry, plugin, path, out);
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *reason = lathe_arena_strdup(&arena, lathe_error_message());
    if (reason != NULL && lathe__registry_refuse(registry, kind, 0, path, reason) == LATHE_OK)
        (void)lathe_error(status, "%s", reason);
    lathe_arena_fini(&arena);
    return status;
}

/* Component names come from files the user writes: they may not lead out of the kind's folder. */
static int is_name(const char *name)
{
    if (name[0] < 'a' || name[0] > 'z')
        return 0;
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static lathe_status not_found(const lathe_registry *registry, int32_t kind, const char *name)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_buffer text = LATHE_BUFFER_INIT;
    const char **names = NULL;
    int64_t n = 0;
    lathe_status status = lathe_registry_names(registry, kind, &arena, &names, &n);
    lathe_buffer_printf(&text, "no %s named '%s'", lathe_kind_name(kind), name);
    const char *near = lathe_suggest(name, names, n);
    if (near != NULL)
        lathe_buffer_printf(&text, " (did you mean '%s'?)", near);
    lathe_buffer_puts(&text, n > 0 ? "; there are: " : "; there are none");
    for (int64_t i = 0; i < n; i++)
        lathe_buffer_printf(&text, "%s%s", i > 0 ? ", " : "", names[i]);
    lathe_buffer_puts(&text, registry->n_paths > 0 ? "; searched: " : "; no folder to search");
    for (int64_t i = 0; i < registry->n_paths; i++)
        lathe_buffer_printf(&text, "%s%s/%s", i > 0 ? ", " : "", registry->paths[i],
                            lathe_kind_name(kind));
    if (status == LATHE_OK && text.status == LATHE_OK)
        status = lathe_error(LATHE_E_NOT_FOUND, "%s", text.data);
    lathe_buffer_fini(&text);
    lathe_arena_fini(&arena);
    return status != LATHE_OK ? status : LATHE_E_NOMEM;
}

lathe_status lathe_registry_find(lathe_registry *registry, int32_t kind, const char *name,
                                 const lathe_component **out)
{
    *out = opened(registry, kind, name);
    if (*out != NULL)
        return LATHE_OK;
    if (!is_name(name)) /* never a part of a path */
        return not_found(registry, kind, name);
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = LATHE_E_NOT_FOUND;
    for (int64_t i = 0; i < registry->n_paths; i++) {
        const char *path = lathe_arena_printf(&arena, "%s/%s/%s.so", registry->paths[i],
                                              lathe_kind_name(kind), name);
        if (path == NULL) {
            status = LATHE_E_NOMEM;
            break;
        }
        if (!lathe_path_exists(path))
            continue;
        /* No falling through: a refused file must not be replaced by another behind it unseen. */
        status = open_at(registry, kind, name, path, out);
        break;
    }
    lathe_arena_fini(&arena);
    return status == LATHE_E_NOT_FOUND ? not_found(registry, kind, name) : status;
}

/* The name of "NAME.so" in arena; NULL for other files. */
static char *stem(lathe_arena *arena, const char *file)
{
    const size_t n = strlen(file);
    if (n < 4 || strcmp(file + n - 3, ".so") != 0)
        return NULL;
    char *name = lathe_arena_strndup(arena, file, (int64_t)n - 3);
    return name != NULL && is_name(name) ? name : NULL;
}

static int was_refused(const lathe_registry *registry, int32_t kind, const char *name)
{
    const size_t n = strlen(name);
    for (int64_t i = 0; i < registry->n_refusals; i++) {
        const lathe_refusal *refusal = &registry->refusals[i];
        const char *slash = strrchr(refusal->path, '/');
        if (refusal->kind == kind && !refusal->is_note && slash != NULL &&
            strncmp(slash + 1, name, n) == 0 && strcmp(slash + 1 + n, ".so") == 0)
            return 1;
    }
    return 0;
}

static lathe_status scan_file(lathe_registry *registry, int32_t kind, const char *name,
                              const char *path, lathe_arena *arena)
{
    const lathe_component *known = opened(registry, kind, name);
    if (known != NULL && strcmp(known->path, path) != 0) {
        const char *why = lathe_arena_printf(arena, "%s: hidden by %s", path, known->path);
        return why == NULL ? LATHE_E_NOMEM : lathe__registry_refuse(registry, kind, 1, path, why);
    }
    if (known != NULL || was_refused(registry, kind, name))
        return LATHE_OK;
    const lathe_status status = open_at(registry, kind, name, path, &known);
    return status == LATHE_E_NOMEM ? status : LATHE_OK;
}

static lathe_status scan_folder(lathe_registry *registry, int32_t kind, const char *folder,
                                lathe_arena *arena)
{
    char **files = NULL;
    int64_t n = 0;
    if (!lathe_path_is_dir(folder))
        return LATHE_OK;
    const lathe_status status = lathe_dir_list(folder, arena, &files, &n);
    if (status != LATHE_OK) {
        const char *why = lathe_arena_strdup(arena, lathe_error_message());
        return why == NULL ? LATHE_E_NOMEM : lathe__registry_refuse(registry, kind, 0, folder, why);
    }
    for (int64_t i = 0; i < n; i++) {
        const char *name = stem(arena, files[i]);
        const char *path = lathe_path_join(arena, folder, files[i]);
        if (name != NULL && path != NULL)
            LATHE_TRY(scan_file(registry, kind, name, path, arena));
    }
    return LATHE_OK;
}

lathe_status lathe_registry_scan(lathe_registry *registry, int32_t kind)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = LATHE_OK;
    for (int32_t k = 1; k < LATHE_N_KINDS && status == LATHE_OK; k++)
        for (int64_t i = 0; i < registry->n_paths && status == LATHE_OK; i++) {
            if (kind != 0 && kind != k)
                continue;
            const char *folder = lathe_path_join(&arena, registry->paths[i], lathe_kind_name(k));
            status = folder == NULL ? LATHE_E_NOMEM : scan_folder(registry, k, folder, &arena);
        }
    lathe_arena_fini(&arena);
    return status;
}

static int by_kind_and_name(const void *a, const void *b)
{
    const lathe_plugin *x = (*(const lathe_component *const *)a)->plugin;
    const lathe_plugin *y = (*(const lathe_component *const *)b)->plugin;
    return x->kind != y->kind ? (x->kind < y->kind ? -1 : 1) : strcmp(x->name, y->name);
}

lathe_status lathe_registry_list(const lathe_registry *registry, int32_t kind, lathe_arena *arena,
                                 const lathe_component ***out, int64_t *out_n)
{
    const lathe_component **list =
        lathe_arena_alloc(arena, registry->n_items * (int64_t)sizeof *list);
    *out = list;
    *out_n = 0;
    if (list == NULL)
        return LATHE_E_NOMEM;
    int64_t n = 0;
    for (int64_t i = 0; i < registry->n_items; i++)
        if (kind == 0 || registry->items[i]->plugin->kind == kind)
            list[n++] = registry->items[i];
    if (n > 1)
        qsort(list, (size_t)n, sizeof *list, by_kind_and_name);
    *out_n = n;
    return LATHE_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

lathe_status lathe_registry_names(const lathe_registry *registry, int32_t kind, lathe_arena *arena,
                                  const char ***out, int64_t *out_n)
{
    enum { MAX_NAMES = 512 };
    const char **names = lathe_arena_alloc(arena, MAX_NAMES * (int64_t)sizeof *names);
    int64_t n = 0, kept = 0;
    *out = names;
    *out_n = 0;
    if (names == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < registry->n_paths; i++) {
        char **files = NULL;
        int64_t n_files = 0;
        const char *folder = lathe_path_join(arena, registry->paths[i], lathe_kind_name(kind));
        if (folder == NULL)
            return LATHE_E_NOMEM;
        if (!lathe_path_is_dir(folder) ||
            lathe_dir_list(folder, arena, &files, &n_files) != LATHE_OK)
            continue;
        for (int64_t j = 0; j < n_files && n < MAX_NAMES; j++)
            if ((names[n] = stem(arena, files[j])) != NULL)
                n++;
    }
    if (n > 1)
        qsort(names, (size_t)n, sizeof *names, by_text);
    for (int64_t i = 0; i < n; i++)
        if (kept == 0 || strcmp(names[kept - 1], names[i]) != 0)
            names[kept++] = names[i];
    *out_n = kept;
    return LATHE_OK;
}

lathe_status lathe_registry_candidates(lathe_registry *registry, int32_t kind, const char *name,
                                       lathe_arena *arena, const lathe_component ***out,
                                       int64_t *out_n)
{
    const int is_auto = strcmp(name, "auto") == 0;
    *out = NULL;
    *out_n = 0;
    if (!is_auto) {
        const lathe_component *one = NULL;
        const lathe_status status = lathe_registry_find(registry, kind, name, &one);
        if (status == LATHE_OK) {
            *out = lathe_arena_alloc(arena, (int64_t)sizeof **out);
            if (*out == NULL)
                return LATHE_E_NOMEM;
            (*out)[0] = one;
            *out_n = 1;
            return LATHE_OK;
        }
        if (status != LATHE_E_NOT_FOUND)
            return status;
    }
    LATHE_TRY(lathe_registry_scan(registry, kind));
    LATHE_TRY(lathe_registry_list(registry, kind, arena, out, out_n));
    int64_t n = 0;
    for (int64_t i = 0; i < *out_n; i++) {
        const char *family = (*out)[i]->plugin->family;
        if (is_auto || (family != NULL && strcmp(family, name) == 0))
            (*out)[n++] = (*out)[i];
    }
    *out_n = n;
    return n > 0 ? LATHE_OK : not_found(registry, kind, name);
}

const lathe_refusal *lathe_registry_refusals(const lathe_registry *registry, int64_t *out_n)
{
    *out_n = registry->n_refusals;
    return registry->refusals;
}

const char *const *lathe_registry_paths(const lathe_registry *registry, int64_t *out_n)
{
    *out_n = registry->n_paths;
    return registry->paths;
}

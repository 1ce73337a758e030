/* The registry: finds, opens and remembers plugins. search_path.c has the search folders,
 * registry_scan.c the functions for whole kinds. */
#include "plug/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/trust.h"
#include "plug/kind.h"
#include "plug/probe.h"
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
    refusal->hides = 0;
    refusal->path = lathe_arena_strdup(&registry->arena, path);
    refusal->reason = lathe_arena_strdup(&registry->arena, reason);
    if (refusal->path == NULL || refusal->reason == NULL)
        return LATHE_E_NOMEM;
    registry->n_refusals++;
    return LATHE_OK;
}

/* Splits "optimizer/adamw". what: the setting that contains it, for messages. */
static lathe_status split(lathe_arena *arena, const char *kind_and_name, const char *what,
                          int32_t *out_kind, const char **out_name)
{
    const char *slash = strchr(kind_and_name, '/');
    const char *kind =
        lathe_arena_strndup(arena, kind_and_name, slash != NULL ? slash - kind_and_name : 0);
    if (kind == NULL)
        return LATHE_E_NOMEM;
    *out_kind = lathe_kind_id(kind);
    if (*out_kind == 0 || !lathe_name_is_valid(slash + 1))
        return lathe_error(LATHE_E_ARG, "%s '%s': expected KIND/NAME, such as optimizer/adamw",
                           what, kind_and_name);
    *out_name = lathe_arena_strdup(arena, slash + 1);
    return *out_name != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

lathe_status lathe_registry_pin(lathe_registry *registry, const char *kind_and_name,
                                const char *hex)
{
    if (strlen(hex) != 64 || strspn(hex, "0123456789abcdefABCDEF") != 64)
        return lathe_error(LATHE_E_ARG, "pin of %s is '%s', expected 64 hexadecimal digits",
                           kind_and_name, hex);
    struct lathe__pin *pin = lathe_arena_alloc(&registry->arena, sizeof *pin);
    if (pin == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(split(&registry->arena, kind_and_name, "pin", &pin->kind, &pin->name));
    pin->hex = lathe_arena_strdup(&registry->arena, hex);
    if (pin->hex == NULL)
        return LATHE_E_NOMEM;
    pin->next = registry->pins;
    registry->pins = pin;
    return LATHE_OK;
}

lathe_status lathe_registry_override(lathe_registry *registry, const char *kind_and_name)
{
    struct lathe__override *override = lathe_arena_alloc(&registry->arena, sizeof *override);
    if (override == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(split(&registry->arena, kind_and_name, "override", &override->kind, &override->name));
    override->next = registry->overrides;
    registry->overrides = override;
    return LATHE_OK;
}

static int is_overridden(const lathe_registry *registry, int32_t kind, const char *name)
{
    for (const struct lathe__override *o = registry->overrides; o != NULL; o = o->next)
        if (o->kind == kind && strcmp(o->name, name) == 0)
            return 1;
    return 0;
}

/* Checks the permissions of the path after following links. */
static lathe_status trust_resolved(const char *path)
{
    char *real = realpath(path, NULL);
    if (real == NULL)
        return lathe_error(LATHE_E_PLUGIN, "%s: %s", path, strerror(errno));
    const lathe_status status = lathe_trust_path(real);
    free(real);
    return status;
}

/* Checks the file and its folder, because a link in the folder could be changed. */
static lathe_status trust_file(const char *path)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *folder = lathe_arena_strndup(&arena, path, strrchr(path, '/') - path);
    lathe_status status = folder != NULL ? trust_resolved(path) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = trust_resolved(folder);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe__registry_may_open(const lathe_registry *registry, int64_t i, int32_t kind,
                                      const char *name, const char *path, int *out_hides)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = LATHE_OK;
    *out_hides = 0;
    if (registry->is_builtin[i])
        return LATHE_OK;
    for (int64_t k = 0; k < registry->n_paths && !*out_hides; k++) {
        const char *builtin = lathe_arena_printf(&arena, "%s/%s/%s.so", registry->paths[k],
                                                 lathe_kind_name(kind), name);
        *out_hides = builtin != NULL && registry->is_builtin[k] && lathe_path_exists(builtin) &&
                     !is_overridden(registry, kind, name);
    }
    lathe_arena_fini(&arena);
    if (*out_hides)
        status = lathe_error(LATHE_E_PLUGIN,
                             "%s: has the name of the built-in %s/%s; give it another name, or "
                             "write plugins.override = [\"%s/%s\"] to use it instead",
                             path, lathe_kind_name(kind), name, lathe_kind_name(kind), name);
    else
        status = trust_file(path);
    return status;
}

const char *lathe__registry_pin_of(const lathe_registry *registry, int32_t kind, const char *name)
{
    for (const struct lathe__pin *pin = registry->pins; pin != NULL; pin = pin->next)
        if (pin->kind == kind && strcmp(pin->name, name) == 0)
            return pin->hex;
    return NULL;
}

const lathe_component *lathe__registry_opened(const lathe_registry *registry, int32_t kind,
                                              const char *name)
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

lathe_status lathe__registry_refuse_error(lathe_registry *registry, int32_t kind, const char *path,
                                          lathe_status status)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *reason = lathe_arena_strdup(&arena, lathe_error_message());
    if (reason != NULL && lathe__registry_refuse(registry, kind, 0, path, reason) == LATHE_OK)
        (void)lathe_error(status, "%s", reason);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe__registry_open(lathe_registry *registry, int32_t kind, const char *name,
                                  const char *path, const lathe_component **out)
{
    const lathe_plugin *plugin = NULL;
    const lathe_status status =
        lathe_so_open(path, kind, name, lathe__registry_pin_of(registry, kind, name), &plugin);
    if (status == LATHE_OK)
        return add(registry, plugin, path, out);
    return lathe__registry_refuse_error(registry, kind, path, status);
}

lathe_status lathe__registry_not_found(const lathe_registry *registry, int32_t kind,
                                       const char *name)
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
    /* [model] name is a plugin; other keys of it name a folder */
    else if (kind == LATHE_KIND_MODEL)
        lathe_buffer_puts(&text, " (the key of a model's folder is model.path)");
    lathe_buffer_puts(&text, n > 0 ? "; there are: " : "; there are none");
    for (int64_t i = 0; i < n; i++)
        lathe_buffer_printf(&text, "%s%s", i > 0 ? ", " : "", names[i]);
    lathe_buffer_puts(&text, registry->n_paths > 0 ? "; searched: " : "; no folder to search");
    for (int64_t i = 0; i < registry->n_paths; i++)
        lathe_buffer_printf(&text, "%s%s/%s", i > 0 ? ", " : "", registry->paths[i],
                            lathe_kind_name(kind));
    for (int64_t i = 0; i < registry->n_refusals; i++)
        if (registry->refusals[i].kind == 0)
            lathe_buffer_printf(&text, "; not searched: %s", registry->refusals[i].reason);
    if (status == LATHE_OK && text.status == LATHE_OK)
        status = lathe_error(LATHE_E_NOT_FOUND, "%s", text.data);
    lathe_buffer_fini(&text);
    lathe_arena_fini(&arena);
    return status != LATHE_OK ? status : LATHE_E_NOMEM;
}

/* Tries out a file of a folder that is not built in, and records its fault. */
static lathe_status prepare(lathe_registry *registry, int64_t i, int32_t kind, const char *name,
                            const char *path, lathe_arena *arena)
{
    int hides = 0;
    lathe_status status = lathe__registry_may_open(registry, i, kind, name, path, &hides);
    lathe_probe probe = {path, name, lathe__registry_pin_of(registry, kind, name), kind, NULL};
    if (status == LATHE_OK && !registry->is_builtin[i]) {
        status = lathe_probe_run(&probe, 1, arena);
        if (status == LATHE_OK && probe.fault != NULL)
            status = lathe_error(LATHE_E_PLUGIN, "%s", probe.fault);
    }
    return status == LATHE_OK ? LATHE_OK
                              : lathe__registry_refuse_error(registry, kind, path, status);
}

lathe_status lathe_registry_find(lathe_registry *registry, int32_t kind, const char *name,
                                 const lathe_component **out)
{
    *out = lathe__registry_opened(registry, kind, name);
    if (*out != NULL)
        return LATHE_OK;
    if (!lathe_name_is_valid(name)) /* such a name must not become part of a path */
        return lathe__registry_not_found(registry, kind, name);
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
        /* Does not continue with the next folder: a refused file must not be silently replaced by
         * another. */
        status = prepare(registry, i, kind, name, path, &arena);
        if (status == LATHE_OK)
            status = lathe__registry_open(registry, kind, name, path, out);
        break;
    }
    lathe_arena_fini(&arena);
    return status == LATHE_E_NOT_FOUND ? lathe__registry_not_found(registry, kind, name) : status;
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

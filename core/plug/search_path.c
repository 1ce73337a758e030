/* Finds the folders that a registry searches for plugins. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log_once.h"
#include "base/trust.h"
#include "plug/registry_state.h"

static void move(lathe_registry *registry, int64_t from, int64_t to)
{
    const char *path = registry->paths[from];
    const uint8_t is_builtin = registry->is_builtin[from];
    const size_t n = (size_t)(from - to);
    memmove(&registry->paths[to + 1], &registry->paths[to], n * sizeof *registry->paths);
    memmove(&registry->is_builtin[to + 1], &registry->is_builtin[to], n);
    registry->paths[to] = path;
    registry->is_builtin[to] = is_builtin;
}

/* Inserts an existing folder at index `at`, with links resolved. If it is already in the list
 * after `at`, it moves to `at`; if it is in the list before `at`, it stays, and *placed is 0. */
static lathe_status insert(lathe_registry *registry, int64_t at, const char *folder, int is_builtin,
                           int *placed)
{
    char *real = realpath(folder, NULL);
    *placed = 0;
    if (real == NULL)
        return LATHE_OK;
    const char *added = lathe_arena_strdup(&registry->arena, real);
    free(real);
    if (added == NULL)
        return LATHE_E_NOMEM;
    int64_t known = registry->n_paths;
    for (int64_t i = 0; i < registry->n_paths; i++)
        if (strcmp(registry->paths[i], added) == 0)
            known = i;
    if (known == LATHE__MAX_PATHS)
        return lathe_error(LATHE_E_ARG, "more than %d plugin folders", LATHE__MAX_PATHS);
    if (known == registry->n_paths) {
        registry->paths[registry->n_paths] = added;
        registry->is_builtin[registry->n_paths++] = 0;
    }
    if (is_builtin)
        registry->is_builtin[known] = 1;
    if (known >= at) {
        move(registry, known, at);
        *placed = 1;
    }
    return LATHE_OK;
}

/* Inserts a folder that is not built in; nobody else may be able to change it. */
static lathe_status insert_trusted(lathe_registry *registry, int64_t at, const char *folder,
                                   int *placed)
{
    char *real = realpath(folder, NULL);
    *placed = 0;
    if (real == NULL)
        return LATHE_OK;
    const lathe_status status = lathe_trust_path(real);
    free(real);
    return status == LATHE_OK ? insert(registry, at, folder, 0, placed) : status;
}

/* Skips a folder that is not from the run file, with a warning: the run may not need it. */
static lathe_status leave_out(lathe_registry *registry, const char *what, const char *folder,
                              const char *reason)
{
    const char *text = lathe_arena_printf(&registry->arena, "%s: %s", what, reason);
    if (text == NULL)
        return LATHE_E_NOMEM;
    lathe_log_once(LATHE_LOG_WARN, text);
    return lathe__registry_refuse(registry, 0, 0, folder, text);
}

static lathe_status add_environment_folder(lathe_registry *registry, const char *folder)
{
    char reason[1024], *here = NULL;
    int placed = 0;
    if (folder[0] != '/') {
        here = getcwd(NULL, 0);
        (void)snprintf(reason, sizeof reason,
                       "'%s' is skipped, expected an absolute folder, such as %s/%s", folder,
                       here != NULL ? here : "", folder);
        free(here);
        return leave_out(registry, "LATHE_PLUGIN_PATH", folder, reason);
    }
    if (!lathe_path_is_dir(folder)) {
        (void)snprintf(reason, sizeof reason, "'%s' is skipped, no such folder", folder);
        return leave_out(registry, "LATHE_PLUGIN_PATH", folder, reason);
    }
    const lathe_status status = insert_trusted(registry, registry->n_paths, folder, &placed);
    return status == LATHE_E_PLUGIN
               ? leave_out(registry, "LATHE_PLUGIN_PATH", folder, lathe_error_message())
               : status;
}

/* Calls add for each entry of a colon list in the environment; skips empty entries. */
static lathe_status each(lathe_registry *registry, const char *variable,
                         lathe_status (*add)(lathe_registry *, const char *))
{
    const char *at = getenv(variable);
    while (at != NULL && *at != '\0') {
        const size_t n = strcspn(at, ":");
        if (n > 0) {
            const char *entry = lathe_arena_strndup(&registry->arena, at, (int64_t)n);
            LATHE_TRY(entry != NULL ? add(registry, entry) : LATHE_E_NOMEM);
        }
        at += n + (at[n] == ':');
    }
    return LATHE_OK;
}

static lathe_status add_override(lathe_registry *registry, const char *kind_and_name)
{
    const lathe_status status = lathe_registry_override(registry, kind_and_name);
    return status == LATHE_E_ARG ? lathe_error_context(status, "LATHE_PLUGIN_OVERRIDE") : status;
}

/* Adds ~/.local/lib/lathe/plugins, where `cmake --install` puts a plugin made from a template. */
static lathe_status add_own(lathe_registry *registry)
{
    const char *home = getenv("HOME");
    int placed = 0;
    if (home == NULL || home[0] != '/')
        return LATHE_OK;
    const char *folder = lathe_arena_printf(&registry->arena, "%s/.local/lib/lathe/plugins", home);
    if (folder == NULL)
        return LATHE_E_NOMEM;
    const lathe_status status = insert_trusted(registry, registry->n_paths, folder, &placed);
    return status == LATHE_E_PLUGIN
               ? leave_out(registry, "your plugins", folder, lathe_error_message())
               : status;
}

/* Adds <folder of file>/<below>, after all others. */
static lathe_status add_beside(lathe_registry *registry, const char *file, const char *below)
{
    const char *slash = strrchr(file, '/');
    int placed = 0;
    if (slash == NULL || file[0] != '/')
        return LATHE_OK;
    const char *folder =
        lathe_arena_printf(&registry->arena, "%.*s/%s", (int)(slash - file), file, below);
    return folder == NULL ? LATHE_E_NOMEM : insert(registry, registry->n_paths, folder, 1, &placed);
}

lathe_status lathe__search_path_init(lathe_registry *registry)
{
    static const char here = 0; /* an address inside liblathe */
    Dl_info info;
    char exe[4096];
    LATHE_TRY(each(registry, "LATHE_PLUGIN_OVERRIDE", add_override));
    LATHE_TRY(each(registry, "LATHE_PLUGIN_PATH", add_environment_folder));
    LATHE_TRY(add_own(registry));
    if (dladdr(&here, &info) != 0 && info.dli_fname != NULL) {
        char *library = realpath(info.dli_fname, NULL);
        const lathe_status status =
            library != NULL ? add_beside(registry, library, "lathe/plugins") : LATHE_OK;
        free(library);
        LATHE_TRY(status);
    }
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return LATHE_OK;
    exe[n] = '\0';
    return add_beside(registry, exe, "../lib/lathe/plugins");
}

lathe_status lathe_registry_add_path(lathe_registry *registry, const char *folder)
{
    int placed = 0;
    if (folder[0] != '/')
        return lathe_error(LATHE_E_ARG, "%s: a plugin folder must be an absolute path", folder);
    if (!lathe_path_is_dir(folder))
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no such folder", folder);
    LATHE_TRY(insert_trusted(registry, registry->n_added, folder, &placed));
    registry->n_added += placed;
    return LATHE_OK;
}

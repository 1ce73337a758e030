/* The folders a registry searches. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "plug/registry_state.h"

/* Puts a folder at index `at`, resolved. One that stands further back moves forward; one that does
 * not exist or stands before `at` is left out. *placed: whether one more stands before at + 1. */
static lathe_status insert(lathe_registry *registry, int64_t at, const char *folder, int *placed)
{
    char *real = realpath(folder, NULL);
    *placed = 0;
    if (real == NULL)
        return LATHE_OK;
    const char *kept = lathe_arena_strdup(&registry->arena, real);
    free(real);
    if (kept == NULL)
        return LATHE_E_NOMEM;
    int64_t known = registry->n_paths;
    for (int64_t i = 0; i < registry->n_paths; i++)
        if (strcmp(registry->paths[i], kept) == 0)
            known = i;
    if (known < at)
        return LATHE_OK;
    if (known == LATHE__MAX_PATHS)
        return lathe_error(LATHE_E_ARG, "more than %d plugin folders", LATHE__MAX_PATHS);
    if (known == registry->n_paths)
        registry->n_paths++;
    memmove(&registry->paths[at + 1], &registry->paths[at],
            (size_t)(known - at) * sizeof *registry->paths);
    registry->paths[at] = kept;
    *placed = 1;
    return LATHE_OK;
}

static lathe_status add_absolute(lathe_registry *registry, int64_t at, const char *folder,
                                 int *placed)
{
    *placed = 0;
    if (folder[0] == '/')
        return insert(registry, at, folder, placed);
    char reason[512];
    (void)snprintf(reason, sizeof reason, "%s: a plugin folder must be an absolute path", folder);
    return lathe__registry_refuse(registry, 0, 0, folder, reason);
}

/* LATHE_PLUGIN_PATH=/a:/b; empty entries are nothing, not the current folder. */
static lathe_status add_environment(lathe_registry *registry)
{
    const char *at = getenv("LATHE_PLUGIN_PATH");
    int placed = 0;
    while (at != NULL && *at != '\0') {
        const size_t n = strcspn(at, ":");
        if (n > 0) {
            const char *folder = lathe_arena_strndup(&registry->arena, at, (int64_t)n);
            if (folder == NULL)
                return LATHE_E_NOMEM;
            LATHE_TRY(add_absolute(registry, registry->n_paths, folder, &placed));
        }
        at += n + (at[n] == ':');
    }
    return LATHE_OK;
}

/* <folder of file>/<below>, behind all others. */
static lathe_status add_beside(lathe_registry *registry, const char *file, const char *below)
{
    const char *slash = strrchr(file, '/');
    int placed = 0;
    if (slash == NULL || file[0] != '/')
        return LATHE_OK;
    const char *folder =
        lathe_arena_printf(&registry->arena, "%.*s/%s", (int)(slash - file), file, below);
    return folder == NULL ? LATHE_E_NOMEM : insert(registry, registry->n_paths, folder, &placed);
}

lathe_status lathe__search_path_init(lathe_registry *registry)
{
    static const char here = 0; /* an address inside liblathe */
    Dl_info info;
    char exe[4096];
    LATHE_TRY(add_environment(registry));
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
    if (folder[0] == '/' && !lathe_path_is_dir(folder))
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no such folder", folder);
    LATHE_TRY(add_absolute(registry, registry->n_added, folder, &placed));
    registry->n_added += placed;
    return LATHE_OK;
}

/* Takes the renderer with which the model in a folder was trained: another one would write other
 * conversations than the model has learnt. */
#include "app/saved_renderer.h"

#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/folder_renderer.h"
#include "plug/registry.h"

/* Checks that the renderer is installed. With --plugins.paths the run file's own check says it. */
static lathe_status check_installed(const lathe_args *args, const char *dir, const char *name)
{
    lathe_registry *registry = NULL;
    const lathe_component *found = NULL;
    if (strcmp(name, "jinja") == 0 || lathe_args_override(args, "plugins.paths"))
        return LATHE_OK;
    LATHE_TRY(lathe_registry_create(&registry));
    lathe_status status = lathe_registry_find(registry, LATHE_KIND_RENDERER, name, &found);
    if (status == LATHE_E_NOT_FOUND)
        status = lathe_error(LATHE_E_CONFIG,
                             "%s was trained with renderer \"%s\", which is not installed: name "
                             "the folder of its plugin with --plugins.paths, or another renderer "
                             "with --renderer.name (\"auto\": by the folder's template)",
                             dir, name);
    lathe_registry_destroy(registry);
    return status;
}

lathe_status lathe_app_use_saved_renderer(const lathe_args *args, const char *dir, const char *base,
                                          lathe_arena *arena, lathe_setting_list *io_settings)
{
    json_t *found = NULL;
    const char *of = dir, *given = lathe_args_override(args, "data.chat_template");
    if (lathe_args_override(args, "renderer.name") || (given && given[0]))
        return LATHE_OK;
    LATHE_TRY(lathe_folder_renderer(dir, arena, &found));
    if (!found && base) { /* an adapter of another program: its base may be a folder of Lathe */
        of = base;
        LATHE_TRY(lathe_folder_renderer(base, arena, &found));
    }
    lathe_status status = LATHE_OK;
    if (lathe_renderer_is_named(found)) {
        const char *name = json_string_value(json_object_get(found, "name"));
        status = check_installed(args, of, name);
        if (status == LATHE_OK)
            lathe_log(LATHE_LOG_INFO,
                      "conversations are written by renderer %s, as %s was trained "
                      "(--renderer.name chooses another)",
                      name, of);
    }
    if (status == LATHE_OK)
        status = lathe_settings_add_renderer(io_settings, arena, found);
    json_decref(found);
    return status;
}

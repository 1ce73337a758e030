/* Takes the renderer that the folder of the model remembers with which a run begins: another one
 * would write other conversations than the model has learnt. */
#include "run/folder/begin_renderer.h"

#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/state/folder_renderer.h"
#include "run/folder/folder_settings.h"

static lathe_status check_installed(lathe_registry *registry, const char *dir, const char *name)
{
    const lathe_component *found = NULL;
    if (registry == NULL || strcmp(name, "jinja") == 0)
        return LATHE_OK;
    const lathe_status status = lathe_registry_find(registry, LATHE_KIND_RENDERER, name, &found);
    if (status != LATHE_E_NOT_FOUND)
        return status;
    return lathe_error(LATHE_E_NOT_FOUND,
                       "%s was trained with renderer \"%s\", which is not installed: name the "
                       "folder of its plugin in plugins.paths, or another renderer in "
                       "renderer.name (\"auto\": by the folder's template)",
                       dir, name);
}

lathe_status lathe_kept_renderer_find(const char *const dirs[2], lathe_registry *registry,
                                      lathe_arena *arena, lathe_kept_renderer *out)
{
    json_t *found = NULL;
    *out = (lathe_kept_renderer){.keys = NULL};
    for (int32_t i = 0; i < 2 && found == NULL; i++) {
        out->at = i;
        if (dirs[i])
            LATHE_TRY(lathe_folder_renderer(dirs[i], arena, &found));
    }
    if (!lathe_renderer_is_named(found)) { /* "auto" of one folder ends the search, too */
        json_decref(found);
        return LATHE_OK;
    }
    out->name = json_string_value(json_object_get(found, "name"));
    const lathe_status status = check_installed(registry, dirs[out->at], out->name);
    if (status != LATHE_OK) {
        json_decref(found);
        return status;
    }
    lathe_log(LATHE_LOG_INFO,
              "conversations are written by renderer %s, as %s was trained (renderer.name chooses "
              "another)",
              out->name, dirs[out->at]);
    out->keys = found;
    return LATHE_OK;
}

static lathe_status append(lathe_run *run, json_t *renderer, const char *dir)
{
    lathe_setting_list more;
    LATHE_TRY(lathe_settings_init(&more, &run->arena));
    more.dir = lathe_arena_strdup(&run->arena, dir);
    LATHE_TRY(lathe_settings_add_renderer(&more, &run->arena, renderer));
    for (int32_t i = 0; i < more.n; i++)
        lathe_edits_add(&run->decided.edits, &more.edits[i]);
    return run->decided.edits.status;
}

lathe_status lathe__begin_renderer(lathe_run *run, int *out_changed)
{
    static const char *const keys[] = {"adapter", "path"};
    const char *const dirs[] = {run->set.model_adapter, run->set.model_path};
    lathe_kept_renderer kept;
    *out_changed = 0;
    if (!lathe__run_is_of_file(run) || lathe_config_names(run->config, LATHE_KIND_RENDERER) ||
        run->set.chat_template)
        return LATHE_OK;
    lathe_status status = lathe_kept_renderer_find(dirs, run->registry, &run->arena, &kept);
    if (status == LATHE_E_NOT_FOUND)
        return lathe__run_refuse(run, "model", keys[kept.at], "%s", lathe_error_message());
    if (status != LATHE_OK || kept.keys == NULL)
        return status;
    status = append(run, kept.keys, dirs[kept.at]);
    json_decref(kept.keys);
    *out_changed = run->decided.keeps_renderer = status == LATHE_OK;
    return status;
}

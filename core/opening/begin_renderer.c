/* Takes the renderer that the folder of the model remembers with which a run begins. */
#include "opening/begin_renderer.h"

#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/folder_renderer.h"
#include "opening/folder_settings.h"

/* Finds the folder that remembers a renderer. *out NULL: none; the caller releases it. */
static lathe_status find(lathe_run *run, const char **out_key, const char **out_dir, json_t **out)
{
    *out = NULL;
    *out_key = "adapter";
    *out_dir = run->set.model_adapter;
    if (*out_dir)
        LATHE_TRY(lathe_folder_renderer(*out_dir, &run->arena, out));
    if (*out || !run->set.model_path)
        return LATHE_OK;
    *out_key = "path";
    *out_dir = run->set.model_path;
    return lathe_folder_renderer(*out_dir, &run->arena, out);
}

static lathe_status check_installed(lathe_run *run, const char *key, const char *dir,
                                    const char *name)
{
    const lathe_component *found = NULL;
    if (strcmp(name, "jinja") == 0)
        return LATHE_OK;
    const lathe_status status =
        lathe_registry_find(run->registry, LATHE_KIND_RENDERER, name, &found);
    if (status != LATHE_E_NOT_FOUND)
        return status;
    return lathe__run_refuse(run, "model", key,
                             "%s was trained with renderer \"%s\", which is not installed: name "
                             "the folder of its plugin in plugins.paths, or another renderer in "
                             "renderer.name (\"auto\": by the folder's template)",
                             dir, name);
}

static lathe_status append(lathe_run *run, json_t *renderer)
{
    lathe_setting_list more;
    LATHE_TRY(lathe_settings_init(&more, &run->arena));
    LATHE_TRY(lathe_settings_add_renderer(&more, &run->arena, renderer));
    for (int32_t i = 0; i < more.n; i++)
        lathe_edits_literal(&run->open.edits, LATHE_BY_FOLDER, more.list[i].key,
                            more.list[i].value);
    return run->open.edits.status;
}

lathe_status lathe__begin_renderer(lathe_run *run, int *out_changed)
{
    json_t *renderer = NULL;
    const char *key = NULL, *dir = NULL;
    const int is_of_run = run->open.path || run->open.mode == LATHE_OPEN_TRAIN;
    *out_changed = 0;
    if (!is_of_run || lathe_config_names(run->config, LATHE_KIND_RENDERER) ||
        run->set.chat_template)
        return LATHE_OK;
    lathe_status status = find(run, &key, &dir, &renderer);
    if (status == LATHE_OK && lathe_renderer_is_named(renderer)) {
        const char *name = json_string_value(json_object_get(renderer, "name"));
        status = check_installed(run, key, dir, name);
        if (status == LATHE_OK)
            status = append(run, renderer);
        if (status == LATHE_OK)
            lathe_log(LATHE_LOG_INFO,
                      "conversations are written by renderer %s, as %s was trained "
                      "(renderer.name chooses another)",
                      name, dir);
        *out_changed = run->open.keeps_renderer = status == LATHE_OK;
    }
    json_decref(renderer);
    return status;
}

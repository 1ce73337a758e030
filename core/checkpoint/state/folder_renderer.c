/* Reads the renderer that a folder remembers. */
#include "checkpoint/state/folder_renderer.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "checkpoint/state/checkpoint_info.h"
#include "checkpoint/state/parents.h"

int lathe_renderer_is_named(const json_t *renderer)
{
    const char *name = json_string_value(json_object_get(renderer, "name"));
    return name && strcmp(name, "auto") != 0;
}

lathe_status lathe_folder_renderer(const char *dir, lathe_arena *arena, json_t **out)
{
    json_t *meta = NULL;
    *out = NULL;
    const char *from = NULL;
    if (lathe_path_is_dir(dir))
        LATHE_TRY(lathe__manifest_folder(dir, arena, &from));
    if (from == NULL)
        return LATHE_OK;
    const lathe_status status = lathe_checkpoint_meta(from, &meta);
    if (status == LATHE_E_NOMEM)
        return status;
    if (status != LATHE_OK) { /* damaged, or a file of another program */
        lathe_log(LATHE_LOG_WARN, "%s; no renderer is read from it", lathe_error_message());
        lathe_error_clear();
        return LATHE_OK;
    }
    json_t *of_run = json_object_get(json_object_get(meta, "config"), "renderer");
    json_t *found = of_run ? of_run : json_object_get(meta, "renderer");
    *out = json_is_object(found) ? json_incref(found) : NULL;
    json_decref(meta);
    return LATHE_OK;
}

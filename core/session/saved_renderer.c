/* Takes the renderer with which the model in a folder was trained: another one would write other
 * conversations than the model has learnt. */
#include "session/saved_renderer.h"

#include "base/error.h"
#include "run/folder/begin_renderer.h"

lathe_status lathe_session_use_renderer(const lathe_model_request *ask, const char *dir,
                                        const char *base, lathe_arena *arena,
                                        lathe_setting_list *io_settings)
{
    const char *const dirs[] = {dir, base}; /* the base of another program's adapter may be ours */
    const char *given = lathe__request_value(ask, "data.chat_template");
    lathe_kept_renderer kept;
    if (lathe__request_value(ask, "renderer.name") || (given && given[0]))
        return LATHE_OK;
    lathe_status status = lathe_kept_renderer_find(dirs, ask->inputs->registry, arena, &kept);
    if (status == LATHE_E_NOT_FOUND)
        return lathe_error(LATHE_E_CONFIG, "%s", lathe_error_message());
    if (status == LATHE_OK && kept.keys)
        status = lathe_settings_add_renderer(io_settings, arena, kept.keys);
    json_decref(kept.keys);
    return status;
}

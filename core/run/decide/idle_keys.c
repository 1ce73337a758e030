/* Warns of keys that this training does not use. */
#include "run/decide/idle_keys.h"

#include <string.h>

#include "base/error.h"
#include "data/records/dataset.h"

static lathe_status is_plain_text(const lathe_run *run, const char *key, lathe_arena *arena,
                                  int32_t *io_is)
{
    lathe_dataset *sets = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_datasets_read(run->config, key, arena, &sets, &n));
    for (int64_t i = 0; i < n && *io_is; i++) {
        lathe_sources sources;
        LATHE_TRY(lathe_sources_list(&sets[i], arena, &sources));
        *io_is = sources.type == LATHE_DATASET_TEXT;
    }
    return LATHE_OK;
}

static void warn_chat_keys(const lathe_run *run)
{
    static const char why[] = "has no effect on this training: its data are plain text, which has "
                              "no conversations";
    const lathe_part *renderer = lathe_config_part(run->config, LATHE_KIND_RENDERER);
    if (lathe_config_is_explicit(run->config, "data", "chat_template_kwargs"))
        lathe__run_warn(run, "data", "chat_template_kwargs", "data.chat_template_kwargs %s", why);
    if (lathe_config_names(run->config, LATHE_KIND_RENDERER) && !run->decided.keeps_renderer &&
        renderer->name != NULL && strcmp(renderer->name, "auto") != 0)
        lathe__run_warn(run, "renderer", "name", "renderer.name %s", why);
}

lathe_status lathe__idle_keys_warn(const lathe_run *run)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    int32_t is_plain = 1;
    lathe_status status = is_plain_text(run, "datasets", &arena, &is_plain);
    if (status == LATHE_OK && run->set.validation)
        status = is_plain_text(run, "validation", &arena, &is_plain);
    if (status == LATHE_OK && is_plain)
        warn_chat_keys(run);
    lathe_arena_fini(&arena);
    return status;
}

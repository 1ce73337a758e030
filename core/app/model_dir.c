/* Opening a run around a model folder. */
#include "app/model_dir.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "run/checkpoint.h"

#define MAX_SETTINGS 16

static int is_set(const lathe_args *args, const char *key)
{
    for (int32_t i = 0; i < args->n_overrides; i++)
        if (strcmp(args->overrides[i].key, key) == 0)
            return 1;
    return 0;
}

/* Rows as long as the model can take, but no longer than is usual. */
static lathe_status context_length(const char *path, int64_t *out)
{
    lathe_model_config config = {0};
    LATHE_TRY(lathe_model_config_load(path, &config));
    *out = config.max_positions < 1024 ? config.max_positions : 1024;
    lathe_model_config_fini(&config);
    return LATHE_OK;
}

static lathe_status open_at(const lathe_args *args, int32_t mode, const char *path,
                            const char *const *settings, lathe_arena *arena, lathe_run **out)
{
    lathe_override *list =
        lathe_arena_alloc(arena, (MAX_SETTINGS + args->n_overrides) * (int64_t)sizeof *list);
    int32_t n = 0;
    int64_t length = 0;
    if (!list)
        return LATHE_E_NOMEM;
    const char *config = lathe_path_join(arena, path, "config.json");
    if (config && !lathe_path_exists(config)) {
        const char *adapter = lathe_path_join(arena, path, "adapter_config.json");
        if (adapter && lathe_path_exists(adapter))
            return lathe_error(
                LATHE_E_CONFIG,
                "%s holds an adapter without its base model; Lathe runs it through the run file "
                "that trained it",
                path);
        return lathe_error(LATHE_E_CONFIG, "%s: no config.json there, so no model folder", path);
    }
    LATHE_TRY(context_length(path, &length));
    list[n++] = (lathe_override){"model.path", path};
    if (!is_set(args, "data.seq_len"))
        list[n++] =
            (lathe_override){"data.seq_len", lathe_arena_printf(arena, "%lld", (long long)length)};
    for (int32_t i = 0; settings && settings[i] && n < MAX_SETTINGS; i += 2)
        if (settings[i + 1] && !is_set(args, settings[i]))
            list[n++] = (lathe_override){settings[i], settings[i + 1]};
    for (int32_t i = 0; i < args->n_overrides; i++)
        list[n++] = args->overrides[i];
    return lathe_run_open_mode(NULL, list, n, mode, out);
}

lathe_status lathe_app_open_model(const lathe_args *args, int32_t mode, const char *const *settings,
                                  lathe_run **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *path = NULL;
    lathe_status status = lathe_path_is_dir(args->words[0])
                              ? lathe_checkpoint_resolve(&arena, args->words[0], &path)
                              : lathe_error(LATHE_E_CONFIG, "%s: no such folder", args->words[0]);
    if (status == LATHE_OK)
        status = open_at(args, mode, path, settings, &arena, out);
    lathe_arena_fini(&arena);
    return status;
}

/* lathe convert of an adapter's folder to a GGUF file. */
#include "savedcmd/convert_adapter.h"

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "checkpoint/adapter_file.h"
#include "io/manifest.h"
#include "opening/adapter_folder.h"
#include "opening/opening.h"
#include "primitives/adapter_gguf.h"
#include "run/run_saved.h"

lathe_status lathe_convert_adapter_find(const char *path, lathe_arena *arena, const char **out)
{
    *out = NULL;
    LATHE_TRY(lathe_adapter_folder_find(path, arena, out));
    if (*out != NULL && lathe_folder_has(*out, "config.json"))
        *out = NULL; /* it has the model, too */
    return LATHE_OK;
}

/* Opens the model with the adapter's settings, and reads its matrices. */
static lathe_status open_adapter(const char *dir, const char *base, lathe_arena *arena,
                                 const char **out_weights, lathe_run **out)
{
    lathe_adapter_folder folder;
    const char *average = lathe_path_join(arena, dir, "average");
    int32_t n = 0;
    if (average == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_adapter_folder_read(dir, base, arena, &folder));
    lathe_override *list =
        lathe_arena_alloc(arena, (folder.settings.n + 2) * (int64_t)sizeof *list);
    if (list == NULL)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < folder.settings.n; i++)
        list[n++] = folder.settings.list[i];
    list[n++] = (lathe_override){"model.path", folder.base};
    if (!lathe_settings_have(&folder.settings, "data.seq_len"))
        list[n++] = (lathe_override){"data.seq_len", "2"}; /* nothing is computed */
    LATHE_TRY(lathe_run_open_mode(NULL, list, n, LATHE_OPEN_WEIGHTS, out));
    if (folder.has_manifest)
        LATHE_TRY(lathe_manifest_verify(dir));
    *out_weights = lathe_path_is_dir(average) ? average : dir;
    if (*out_weights == average)
        lathe_log(LATHE_LOG_INFO, "averaged weights, of %s", average);
    return lathe__adapter_file_take(lathe__run_saved(*out), *out_weights);
}

lathe_status lathe_convert_adapter(const char *dir, const char *base, const char *to, int32_t type,
                                   lathe_arena *arena)
{
    lathe_run *run = NULL;
    const char *weights = dir;
    lathe_status status = open_adapter(dir, base, arena, &weights, &run);
    if (status == LATHE_OK) {
        const lathe_merge_part part = {lathe__run_saved(run), dir, 1.0};
        status = lathe__adapter_gguf_write(&part, to, type);
    }
    lathe_run_close(run);
    return status;
}

/* lathe convert of an adapter's folder to a GGUF file. */
#include "savedcmd/convert_adapter.h"

#include "base/error.h"
#include "checkpoint/adapter_file.h"
#include "opening/adapter_folder.h"
#include "opening/opening.h"
#include "primitives/adapter_gguf.h"
#include "run/run_saved.h"

/* Opens the model with the adapter's settings, and reads its matrices. */
static lathe_status open_adapter(const lathe_model_folder *found, const char *base,
                                 lathe_arena *arena, lathe_run **out)
{
    lathe_adapter_folder folder;
    const char *dir = found->dir;
    int32_t n = 0;
    LATHE_TRY(lathe_adapter_folder_read(dir, base, arena, &folder));
    if (base != NULL)
        LATHE_TRY(lathe_adapter_folder_refuse_merged(dir, base));
    else
        LATHE_TRY(lathe_adapter_base_check(dir, folder.base));
    lathe_override *list =
        lathe_arena_alloc(arena, (folder.settings.n + 3) * (int64_t)sizeof *list);
    if (list == NULL)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < folder.settings.n; i++)
        list[n++] = folder.settings.list[i];
    list[n++] = (lathe_override){"model.path", folder.base};
    if (base == NULL) /* the adapter names the weights themselves */
        list[n++] = (lathe_override){"model.weights", "training"};
    if (!lathe_settings_have(&folder.settings, "data.seq_len"))
        list[n++] = (lathe_override){"data.seq_len", "2"}; /* nothing is computed */
    LATHE_TRY(lathe_run_open_mode(NULL, list, n, LATHE_OPEN_WEIGHTS, out));
    return lathe__adapter_file_take(lathe__run_saved(*out), found->weights);
}

lathe_status lathe_convert_adapter(const lathe_model_folder *found, const char *base,
                                   const char *to, int32_t type, lathe_arena *arena)
{
    lathe_run *run = NULL;
    lathe_status status = open_adapter(found, base, arena, &run);
    if (status == LATHE_OK) {
        const lathe_merge_part part = {lathe__run_saved(run), found->dir, 1.0};
        status = lathe__adapter_gguf_write(&part, to, type);
    }
    lathe_run_close(run);
    return status;
}

/* Makes the instances of the adapters that a run generates with. */
#include "run/folder/named_open.h"

#include "base/error.h"
#include "base/log.h"
#include "run/folder/adapter_folder.h"
#include "run/folder/other_adapter.h"

static lathe_status open_one(lathe_run *run, lathe_named_adapter *one)
{
    lathe_adapter_folder folder;
    const char *what = lathe_arena_printf(&run->arena, "adapter %s=%s", one->name, one->dir);
    if (!what)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_adapter_folder_read(one->dir, run->set.model_path, &run->arena, &folder));
    LATHE_TRY(lathe__other_adapter_check_base(run, what, one->dir));
    return lathe__other_adapter_make(run, what, &folder.settings, &one->config, &one->part);
}

lathe_status lathe__named_adapters_open(lathe_run *run)
{
    for (int32_t i = 0; run->named && i < run->named->n; i++)
        LATHE_TRY(open_one(run, &run->named->list[i]));
    return LATHE_OK;
}

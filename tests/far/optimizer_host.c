/* An optimizer of this build, FAR_WRAPS, under the name FAR_NAME and with host code only. */
#include "far.h"
#include "lathe/optimizer.h"

static lathe_optimizer_v1 table;

static void fill(lathe_plugin *entry)
{
    *entry = *far_real_plugin("optimizer", FAR_WRAPS);
    table = *(const lathe_optimizer_v1 *)entry->table;
    table.cuda_image = NULL;
    entry->name = FAR_NAME;
    entry->table = &table;
}

FAR_ENTRY(fill)

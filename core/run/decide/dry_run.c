/* Prepares and ends a dry run. */
#include "run/decide/dry_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"

enum { STEPS = 2 };

lathe_status lathe__dry_run_begin(lathe_run *run)
{
    lathe_settings *s = &run->set;
    const char *tmp = getenv("TMPDIR");
    char *folder =
        lathe_arena_printf(&run->arena, "%s/lathe-dry-run-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    if (folder == NULL)
        return LATHE_E_NOMEM;
    if (mkdtemp(folder) == NULL)
        return lathe_error(LATHE_E_IO, "%s: cannot make a folder for a dry run's data: %s", folder,
                           strerror(errno));
    run->dry_dir = s->cache_dir = folder;
    s->checkpoint.dir = NULL;
    s->checkpoint.resume = "never";
    s->stop_after = STEPS;
    s->sample_every = 0;
    s->tensorboard = 0;
    s->eval_every = 0;
    s->early_stopping_patience = 0;
    return LATHE_OK;
}

void lathe__dry_run_end(lathe_run *run)
{
    if (run->dry_dir)
        (void)lathe_dir_remove(run->dry_dir);
    run->dry_dir = NULL;
}

/* Reading a checkpoint back: what is in the files is what is in memory. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "io/manifest.h"
#include "run/adapter_file.h"
#include "run/checkpoint.h"
#include "run/model_file.h"
#include "run/weight_average.h"

/* Lets go of the kernel's copy, which is clean after the fsync: the next read comes from the disk. */
static lathe_status forget_cache(const char *dir, lathe_arena *arena)
{
    char **paths = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_dir_walk(dir, arena, &paths, &n));
    for (int64_t i = 0; i < n; i++) {
        const int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return lathe_error(LATHE_E_IO, "%s: cannot open: %s", paths[i], strerror(errno));
        (void)posix_fadvise(fd, 0, 0,
                            POSIX_FADV_DONTNEED); /* a hint; without it memory is compared */
        (void)close(fd);
    }
    return LATHE_OK;
}

static lathe_status compare_weights(const lathe_run *run, const char *dir)
{
    if (lathe__checkpoint_has_model(run))
        LATHE_TRY(lathe__model_file_compare(run, dir));
    return run->params.n > run->params.n_model ? lathe__adapter_file_compare(run, dir) : LATHE_OK;
}

static lathe_status compare_average(const lathe_run *run, const char *dir)
{
    lathe_run view;
    if (run->store.average_bytes == 0)
        return LATHE_OK;
    LATHE_TRY(lathe__average_view(run, &view));
    const char *path = lathe_path_join(&view.arena, dir, "average");
    const lathe_status status = path ? compare_weights(&view, path) : LATHE_E_NOMEM;
    lathe__average_view_fini(&view);
    return status;
}

lathe_status lathe__checkpoint_read_back(const lathe_run *run, const char *dir)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = forget_cache(dir, &arena);
    lathe_arena_fini(&arena);
    LATHE_TRY(status);
    LATHE_TRY(lathe_manifest_verify(dir));
    LATHE_TRY(compare_weights(run, dir));
    return compare_average(run, dir);
}

/* Compares the files of a checkpoint with memory. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/state/adapter_file.h"
#include "checkpoint/state/checkpoint.h"
#include "checkpoint/state/model_file.h"
#include "files/safetensors/manifest.h"

/* Drops the files from the page cache, so that the next read comes from the disk. Their pages are
 * clean after the fsync. */
static lathe_status forget_cache(const char *dir, lathe_arena *arena)
{
    char **paths = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_dir_walk(dir, arena, &paths, &n));
    for (int64_t i = 0; i < n; i++) {
        const int fd = open(paths[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            return lathe_error(LATHE_E_IO, "%s: cannot open: %s", paths[i], strerror(errno));
        (void)posix_fadvise(fd, 0, 0,
                            /* only a hint; if the kernel ignores it, cached pages are compared */
                            POSIX_FADV_DONTNEED);
        (void)close(fd);
    }
    return LATHE_OK;
}

static lathe_status compare_weights(const lathe_saved_state *saved, const char *dir)
{
    if (lathe__checkpoint_has_model(saved))
        LATHE_TRY(lathe__model_file_compare(saved, dir));
    return lathe__adapter_file_compare(saved, dir);
}

static lathe_status compare_average(const lathe_saved_state *saved, const char *dir)
{
    lathe_saved_state view = *saved;
    lathe_store store;
    lathe_arena arena = LATHE_ARENA_INIT;
    if (!saved->store->has_averages)
        return LATHE_OK;
    lathe_status status = lathe_average_view(saved->store, &arena, &store);
    view.store = &store;
    const char *path = lathe_path_join(&arena, dir, "average");
    if (status == LATHE_OK)
        status = path ? compare_weights(&view, path) : LATHE_E_NOMEM;
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe__checkpoint_read_back(const lathe_saved_state *saved, const char *dir)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = forget_cache(dir, &arena);
    lathe_arena_fini(&arena);
    LATHE_TRY(status);
    LATHE_TRY(lathe_manifest_verify(dir));
    LATHE_TRY(compare_weights(saved, dir));
    return compare_average(saved, dir);
}

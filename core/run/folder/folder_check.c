/* Checks the run's folder before the run starts. */
#include "run/folder/folder_check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/model_path.h"
#include "checkpoint/state/checkpoint_folder.h"

static lathe_status refuse_shared(const lathe_run *run)
{
    const char *dir = run->set.checkpoint.dir;
    return lathe__run_refuse(run, "checkpoint", "dir",
                             "checkpoint.dir = \"%s\" is the folder of a run that is training: %s; "
                             "wait for it, stop it, or choose another checkpoint.dir",
                             dir, lathe_error_message());
}

/* Finds the folder itself, or its nearest existing parent. */
static void find_folder(const char *dir, char out[PATH_MAX])
{
    (void)snprintf(out, PATH_MAX, "%s", dir);
    while (!lathe_path_exists(out)) {
        char *slash = strrchr(out, '/');
        if (slash == NULL || slash == out) {
            (void)snprintf(out, PATH_MAX, slash ? "/" : ".");
            return;
        }
        *slash = '\0';
    }
}

/* Tries to write, because permissions are not enough: the disk may be full or mounted read-only. */
static lathe_status check_writable(const lathe_run *run)
{
    char folder[PATH_MAX], probe[PATH_MAX + 32];
    find_folder(run->set.checkpoint.dir, folder);
    (void)snprintf(probe, sizeof probe, "%s/.lathe-XXXXXX", folder);
    if (mkdtemp(probe)) {
        (void)rmdir(probe);
        return LATHE_OK;
    }
    return lathe__run_refuse(
        run, "checkpoint", "dir",
        "checkpoint.dir = \"%s\": the folder %s cannot be written: %s; choose another one",
        run->set.checkpoint.dir, folder, strerror(errno));
}

lathe_status lathe__folder_check(const lathe_run *run)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *dir = run->set.checkpoint.dir;
    if (dir == NULL)
        return LATHE_OK;
    const char *path = lathe_path_join(&arena, dir, "lock");
    lathe_status status = path ? lathe_lock_check(path) : LATHE_E_NOMEM;
    if (status == LATHE_E_STATE)
        status = refuse_shared(run);
    else if (status == LATHE_OK)
        status = check_writable(run);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe__folder_lock(lathe_run *run, lathe_lock *out)
{
    const char *path = lathe_path_join(&run->arena, run->set.checkpoint.dir, "lock");
    if (path == NULL)
        return LATHE_E_NOMEM;
    const lathe_status status = lathe_lock_take(path, out);
    return status == LATHE_E_STATE ? refuse_shared(run) : status;
}

static int holds_run(const char *dir, lathe_arena *arena)
{
    static const char *const files[] = {"latest", "run.json", "metrics.jsonl", "branches.json"};
    lathe_checkpoint_entry *list = NULL;
    int64_t n = 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (lathe_folder_holds(dir, files[i]))
            return 1;
    return lathe_checkpoint_list(dir, arena, &list, &n) == LATHE_OK && n > 0;
}

/* Renames the folder to the first free name. */
static lathe_status rename_aside(const char *dir, lathe_arena *arena, const char **out)
{
    for (int i = 1; i < 10000; i++) {
        const char *to = lathe_arena_printf(arena, "%s.before-%d", dir, i);
        if (to == NULL)
            return LATHE_E_NOMEM;
        if (renameat2(AT_FDCWD, dir, AT_FDCWD, to, RENAME_NOREPLACE) == 0 ||
            (errno == EINVAL && !lathe_path_exists(to) && rename(dir, to) == 0)) {
            *out = to;
            return lathe_file_sync_parent(to);
        }
        if (errno != EEXIST && errno != EINVAL)
            break;
    }
    return lathe_error(LATHE_E_IO,
                       "%s: the run in it cannot be moved aside (checkpoint.resume = \"restart\"): "
                       "%s; move it, or choose another checkpoint.dir",
                       dir, strerror(errno));
}

lathe_status lathe__folder_move_aside(lathe_run *run)
{
    lathe_arena *arena = &run->arena;
    lathe_lock lock = LATHE_LOCK_INIT;
    const char *to = NULL;
    char *real = realpath(run->set.checkpoint.dir, NULL); /* a link stays where it is */
    const char *dir = real ? lathe_arena_strdup(arena, real) : NULL;
    free(real);
    if (dir == NULL || !holds_run(dir, arena))
        return LATHE_OK;
    LATHE_TRY(lathe__folder_lock(run, &lock));
    const lathe_status status = rename_aside(dir, arena, &to);
    lathe_lock_release(&lock);
    if (status == LATHE_OK)
        lathe_log(LATHE_LOG_WARN, "checkpoint.resume = \"restart\": the run in %s was moved to %s",
                  run->set.checkpoint.dir, to);
    return status;
}

int32_t lathe__is_elsewhere(const lathe_run *run, const char *path)
{
    return lathe__run_is_offline(run) && path && !lathe_path_exists(path);
}

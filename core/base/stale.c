/* Removes what processes that have ended left unfinished. */
#include "base/stale.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/unfinished.h"

/* The process of an unfinished file: the last one in NAME.tmp.PID.tmp.PID. */
static long process_of(const char *file, const char *name)
{
    long pid = 0;
    const char *at = file;
    if (name && strncmp(file, name, strlen(name)) != 0)
        return 0;
    for (at = name ? file + strlen(name) : strstr(file, LATHE_UNFINISHED_MARK); at && *at;)
        at = lathe_unfinished_mark(at, &pid);
    return at ? pid : 0;
}

int lathe_stale_is_unfinished(const char *file, const char *name)
{
    return process_of(file, name) > 0;
}

static int has_ended(long pid)
{
    return pid == (long)getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH);
}

static lathe_status remove_one(const char *path)
{
    lathe_log(LATHE_LOG_INFO, "%s: removed, because the process that wrote it has ended", path);
    if (lathe_path_is_dir(path))
        return lathe_dir_remove(path);
    return unlink(path) == 0 || errno == ENOENT
               ? LATHE_OK
               : lathe_error(LATHE_E_IO, "%s: cannot remove: %s", path, strerror(errno));
}

static lathe_status remove_all(const char *dir, const char *name, int is_locked, lathe_arena *arena)
{
    char **names = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_dir_list(dir, arena, &names, &n));
    for (int64_t i = 0; i < n; i++) {
        const long pid = process_of(names[i], name);
        if (pid == 0 || (!is_locked && !has_ended(pid)))
            continue;
        const char *path = lathe_path_join(arena, dir, names[i]);
        LATHE_TRY(path ? remove_one(path) : LATHE_E_NOMEM);
    }
    return LATHE_OK;
}

lathe_status lathe_stale_remove(const char *dir, const char *name)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_status status = remove_all(dir, name, 0, &arena);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_stale_remove_locked(const char *dir, const char *name)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_status status = remove_all(dir, name, 1, &arena);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status clear(const char *path, lathe_arena *arena)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    const char *clean = lathe_arena_printf(arena, "%.*s", (int)n, path);
    const char *slash = clean ? strrchr(clean, '/') : NULL;
    const char *dir = ".";
    if (slash)
        dir = slash == clean ? "/" : lathe_arena_printf(arena, "%.*s", (int)(slash - clean), clean);
    if (clean == NULL || dir == NULL)
        return LATHE_E_NOMEM;
    return lathe_path_is_dir(dir) ? lathe_stale_remove(dir, slash ? slash + 1 : clean) : LATHE_OK;
}

void lathe_stale_clear(const char *path)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    if (clear(path, &arena) != LATHE_OK)
        lathe_error_clear();
    lathe_arena_fini(&arena);
}

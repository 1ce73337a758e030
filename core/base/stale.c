/* Removes what processes that have ended left unfinished. */
#include "base/stale.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"

#define MARK ".tmp."

/* The process in "NAME.tmp.PID"; 0 for other names. of: the NAME, or NULL. */
static long process_of(const char *file, const char *of)
{
    const char *at =
        strstr(of && strncmp(file, of, strlen(of)) == 0 ? file + strlen(of) : file, MARK);
    char *end = NULL;
    if (!at || (of && at != file + strlen(of)))
        return 0;
    const char *digits = at + strlen(MARK);
    const long pid = strtol(digits, &end, 10);
    return end != digits && *end == '\0' && pid > 0 ? pid : 0;
}

static int has_ended(long pid)
{
    return pid == (long)getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH);
}

static lathe_status remove_all(const char *dir, const char *name, lathe_arena *arena)
{
    char **names = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_dir_list(dir, arena, &names, &n));
    for (int64_t i = 0; i < n; i++) {
        const long pid = process_of(names[i], name);
        if (pid == 0 || !has_ended(pid))
            continue;
        const char *path = lathe_path_join(arena, dir, names[i]);
        if (!path)
            return LATHE_E_NOMEM;
        lathe_log(LATHE_LOG_INFO, "%s: removed, because the process that wrote it has ended", path);
        if (lathe_path_is_dir(path))
            LATHE_TRY(lathe_dir_remove(path));
        else if (unlink(path) != 0 && errno != ENOENT)
            return lathe_error(LATHE_E_IO, "%s: cannot remove: %s", path, strerror(errno));
    }
    return LATHE_OK;
}

lathe_status lathe_stale_remove(const char *dir, const char *name)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_status status = remove_all(dir, name, &arena);
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
    if (!clean || !dir)
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

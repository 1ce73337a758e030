/* Writes a new folder beside its place, and gives it its name when it is complete. */
#include "base/new_folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/stale.h"

const char *lathe_new_folder_beside(lathe_arena *arena, const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    lathe_stale_clear(path);
    return lathe_arena_printf(arena, "%.*s.tmp.%ld", (int)n, path, (long)getpid());
}

static lathe_status give_name(const char *beside, const char *path)
{
    if (rename(beside, path) == 0)
        return lathe_file_sync_parent(path);
    if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR)
        return lathe_error(LATHE_E_CONFIG,
                           "%s was made by another process in the meantime: give another folder, "
                           "or remove it",
                           path);
    return lathe_error(LATHE_E_IO, "cannot rename %s to %s: %s", beside, path, strerror(errno));
}

lathe_status lathe_new_folder_end(lathe_status status, const char *beside, const char *path)
{
    char why[1024];
    if (status == LATHE_OK)
        status = give_name(beside, path);
    if (status == LATHE_OK)
        return LATHE_OK;
    (void)snprintf(why, sizeof why, "%s", lathe_error_message());
    (void)lathe_dir_remove(beside);
    return lathe_error(status, "%s", why);
}

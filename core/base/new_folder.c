/* Writes a new folder beside its place, and gives it its name when it is complete. */
#include "base/new_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/stale.h"

lathe_status lathe_new_folder_check(const char *path)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    struct stat info;
    char **names = NULL;
    int64_t n = 1;
    const size_t length = strlen(path);
    if (length > 5 && strcmp(path + length - 5, ".gguf") == 0)
        return lathe_error(
            LATHE_E_CONFIG,
            "%s: a folder is written here, and this is the name of a GGUF file: name "
            "a folder, and make the file of it with lathe convert FOLDER -o %s",
            path, path);
    if (lstat(path, &info) != 0)
        return LATHE_OK; /* whether it can be made is found when it is begun */
    lathe_status status = LATHE_OK;
    if (S_ISDIR(info.st_mode))
        status = lathe_dir_list(path, &arena, &names, &n);
    if (status == LATHE_OK && n > 0)
        status = lathe_error(LATHE_E_CONFIG, "%s exists already: give another folder, or remove it",
                             path);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_new_folder_begin(lathe_arena *arena, const char *path, const char **out_beside)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    lathe_stale_clear(path);
    *out_beside = lathe_arena_printf(arena, "%.*s.tmp.%ld", (int)n, path, (long)getpid());
    if (*out_beside == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_dir_remove(*out_beside));
    return lathe_dir_create(*out_beside);
}

/* Makes the entries of a folder and of those in it durable. The files were synced when they were
 * written, but their names are lost with the machine unless their folders are synced, too. */
static lathe_status sync_folders(const char *path, lathe_arena *arena)
{
    char **names = NULL;
    int64_t n = 0;
    LATHE_TRY(lathe_dir_list(path, arena, &names, &n));
    for (int64_t i = 0; i < n; i++) {
        struct stat info;
        const char *child = lathe_path_join(arena, path, names[i]);
        if (child == NULL)
            return LATHE_E_NOMEM;
        if (lstat(child, &info) == 0 && S_ISDIR(info.st_mode))
            LATHE_TRY(sync_folders(child, arena));
    }
    return lathe_dir_sync(path);
}

static lathe_status sync_all(const char *beside)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_status status = sync_folders(beside, &arena);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status cannot_rename(const char *beside, const char *path)
{
    return lathe_error(LATHE_E_IO, "cannot rename %s to %s: %s", beside, path, strerror(errno));
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
    return cannot_rename(beside, path);
}

/* The folder that was at `path` is then at *io_beside. */
static lathe_status exchange_names(lathe_arena *arena, const char **io_beside, const char *path)
{
    const char *beside = *io_beside;
    if (renameat2(AT_FDCWD, beside, AT_FDCWD, path, RENAME_EXCHANGE) == 0)
        return LATHE_OK;
    if (errno != EINVAL && errno != ENOSYS)
        return cannot_rename(beside, path);
    /* The file system cannot exchange two names. Between the two calls no folder has the name; a
     * run that starts in this moment resumes from the checkpoint before. */
    *io_beside = lathe_arena_printf(arena, "%s.old.tmp.%ld", path, (long)getpid());
    if (*io_beside == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_dir_remove(*io_beside));
    if (rename(path, *io_beside) != 0)
        return cannot_rename(beside, path);
    if (rename(beside, path) == 0)
        return LATHE_OK;
    const lathe_status status = cannot_rename(beside, path);
    (void)rename(*io_beside, path);
    return status;
}

static lathe_status take_place(const char *beside, const char *path)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *old = beside;
    lathe_status status = exchange_names(&arena, &old, path);
    if (status == LATHE_OK)
        status = lathe_file_sync_parent(path);
    if (status == LATHE_OK)
        status = lathe_dir_remove(old);
    lathe_arena_fini(&arena);
    return status;
}

/* Removes an incomplete folder; keeps the message of the error. */
static lathe_status give_up(lathe_status status, const char *beside)
{
    char why[4096];
    (void)snprintf(why, sizeof why, "%s", lathe_error_message());
    if (lathe_dir_remove(beside) != LATHE_OK)
        lathe_log(LATHE_LOG_WARN, "%s could not be removed", beside);
    return lathe_error(status, "%s", why);
}

lathe_status lathe_new_folder_end(lathe_status status, const char *beside, const char *path)
{
    if (status == LATHE_OK)
        status = sync_all(beside);
    if (status == LATHE_OK)
        status = give_name(beside, path);
    return status == LATHE_OK ? LATHE_OK : give_up(status, beside);
}

lathe_status lathe_new_folder_replace(lathe_status status, const char *beside, const char *path)
{
    if (status == LATHE_OK)
        status = sync_all(beside);
    if (status == LATHE_OK)
        status = lathe_path_exists(path) ? take_place(beside, path) : give_name(beside, path);
    return status == LATHE_OK ? LATHE_OK : give_up(status, beside);
}

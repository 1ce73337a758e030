/* Checks who may change a plugin's file. */
#include "base/trust.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

lathe_status lathe_trust_file(const char *path, const struct stat *info)
{
    if (info->st_mode & (S_IWGRP | S_IWOTH))
        return lathe_error(LATHE_E_PLUGIN, "%s: %s may write it; run: chmod go-w %s", path,
                           info->st_mode & S_IWOTH ? "anyone" : "its group", path);
    struct stat above;
    char *folder = strdup(path);
    if (folder == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: path");
    char *slash = strrchr(folder, '/');
    lathe_status status = LATHE_OK;
    if (slash != NULL) {
        *slash = '\0';
        if (stat(folder, &above) == 0 && (above.st_mode & S_IWOTH) && !(above.st_mode & S_ISVTX))
            status = lathe_error(
                LATHE_E_PLUGIN, "%s: anyone may write its folder; run: chmod o-w %s", path, folder);
    }
    free(folder);
    return status;
}

/* Whether this is the user's private group: many systems make a group for each user, of which
 * nobody else is a member. */
static int is_private_group(gid_t gid)
{
    const struct passwd *user = getpwuid(geteuid());
    if (user == NULL || user->pw_gid != gid)
        return 0;
    char name[256];
    const size_t n = strlen(user->pw_name);
    if (n >= sizeof name)
        return 0;
    memcpy(name, user->pw_name, n + 1);
    const struct group *group = getgrgid(gid);
    if (group == NULL || strcmp(group->gr_name, name) != 0)
        return 0;
    for (char **member = group->gr_mem; *member != NULL; member++)
        if (strcmp(*member, name) != 0)
            return 0;
    return 1;
}

/* Checks one step of the path `whole`: `path` is the whole path itself or a folder above it. */
static lathe_status check_one(const char *whole, const char *path)
{
    struct stat info;
    char what[32 + 4096] = "it";
    if (stat(path, &info) != 0)
        return lathe_error(LATHE_E_PLUGIN, "%s: %s", path, strerror(errno));
    if (strcmp(whole, path) != 0)
        (void)snprintf(what, sizeof what, "its folder %s", path);
    if (info.st_uid != 0 && info.st_uid != geteuid())
        return lathe_error(LATHE_E_PLUGIN,
                           "%s: %s belongs to user %u, expected you or root; copy the plugins "
                           "into a folder of yours",
                           whole, what, (unsigned)info.st_uid);
    if (S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX))
        return LATHE_OK;
    if (info.st_mode & S_IWOTH)
        return lathe_error(LATHE_E_PLUGIN, "%s: anyone may write %s; run: chmod go-w %s", whole,
                           what, path);
    if ((info.st_mode & S_IWGRP) && !is_private_group(info.st_gid))
        return lathe_error(LATHE_E_PLUGIN, "%s: the group of %s may write it; run: chmod g-w %s",
                           whole, path, path);
    return LATHE_OK;
}

lathe_status lathe_trust_path(const char *path)
{
    char *at = strdup(path);
    if (at == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: path");
    lathe_status status = check_one(path, path);
    while (status == LATHE_OK && at[1] != '\0') {
        char *slash = strrchr(at, '/');
        slash[slash == at] = '\0'; /* the path "/" keeps its slash */
        status = check_one(path, at);
    }
    free(at);
    return status;
}

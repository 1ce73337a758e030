/* Creates, removes, lists and walks folders (declared in fs.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/unfinished.h"

/* Folders nested deeper than this are refused: the walks below recurse. */
enum { MAX_DEPTH = 64 };

static lathe_status dir_error(const char *path, const char *what)
{
    const int cause = errno;
    char shown[PATH_MAX];
    return lathe_error(cause == ENOENT ? LATHE_E_NOT_FOUND : LATHE_E_IO, "%s: cannot %s: %s",
                       lathe_path_final(path, shown), what, strerror(cause));
}

lathe_status lathe_dir_create(const char *path)
{
    char *copy = strdup(path);
    if (copy == NULL)
        return lathe_error(LATHE_E_NOMEM, "%s: out of memory", path);
    lathe_status status = LATHE_OK;
    for (char *at = copy + 1; status == LATHE_OK && copy[0] != '\0'; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        const char end = *at;
        *at = '\0';
        if (!lathe_path_is_dir(copy) && mkdir(copy, 0777) != 0 &&
            (errno != EEXIST || !lathe_path_is_dir(copy))) {
            if (errno == EEXIST)
                errno = ENOTDIR;
            status = dir_error(copy, "create folder");
        }
        *at = end;
        if (end == '\0')
            break;
    }
    free(copy);
    return status;
}

/* Empties the folder open as fd; takes fd. */
static lathe_status empty_dir(int fd, const char *path, int depth)
{
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        const lathe_status status = dir_error(path, "list");
        (void)close(fd);
        return status;
    }
    lathe_status status = LATHE_OK;
    struct dirent *entry;
    while (status == LATHE_OK && (errno = 0, entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        const int child = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (child >= 0 && depth >= MAX_DEPTH) {
            (void)close(child);
            status = lathe_error(LATHE_E_IO, "%s: folders nested deeper than %d", path, MAX_DEPTH);
        } else if (child >= 0) {
            status = empty_dir(child, path, depth + 1);
            if (status == LATHE_OK && unlinkat(fd, name, AT_REMOVEDIR) != 0)
                status = dir_error(path, "remove a folder in it");
        } else if (unlinkat(fd, name, 0) != 0 && errno != ENOENT) {
            status = dir_error(path, "remove a file in it");
        }
    }
    (void)closedir(dir);
    return status;
}

lathe_status lathe_dir_remove(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? LATHE_OK : dir_error(path, "open folder");
    LATHE_TRY(empty_dir(fd, path, 0));
    return rmdir(path) == 0 ? LATHE_OK : dir_error(path, "remove folder");
}

/* A growing list of arena strings. */
struct names {
    lathe_arena *arena;
    char **items;
    int64_t n, capacity;
};

static lathe_status names_add(struct names *names, char *name)
{
    if (name == NULL)
        return LATHE_E_NOMEM;
    if (names->n == names->capacity) {
        const int64_t capacity = names->capacity == 0 ? 32 : names->capacity * 2;
        char **items = lathe_arena_alloc(names->arena, capacity * (int64_t)sizeof *items);
        if (items == NULL)
            return LATHE_E_NOMEM;
        if (names->n > 0)
            memcpy(items, names->items, (size_t)names->n * sizeof *items);
        names->items = items;
        names->capacity = capacity;
    }
    names->items[names->n++] = name;
    return LATHE_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_sort(struct names *names)
{
    if (names->n > 1)
        qsort(names->items, (size_t)names->n, sizeof *names->items, by_text);
}

lathe_status lathe_dir_list(const char *path, lathe_arena *arena, char ***out_names, int64_t *out_n)
{
    struct names names = {arena, NULL, 0, 0};
    *out_names = NULL;
    *out_n = 0;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return dir_error(path, "list");
    lathe_status status = LATHE_OK;
    struct dirent *entry;
    while (status == LATHE_OK && (errno = 0, entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = names_add(&names, lathe_arena_strdup(arena, entry->d_name));
    if (status == LATHE_OK && errno != 0)
        status = dir_error(path, "list");
    (void)closedir(dir);
    LATHE_TRY(status);
    names_sort(&names);
    *out_names = names.items;
    *out_n = names.n;
    return LATHE_OK;
}

/* Links to files count as files; links to folders are not entered, so there are no circles. */
static lathe_status walk(const char *path, struct names *names, struct names *others, int depth)
{
    char **entries = NULL;
    int64_t n = 0;
    if (depth > MAX_DEPTH)
        return lathe_error(LATHE_E_IO, "%s: folders nested deeper than %d", path, MAX_DEPTH);
    LATHE_TRY(lathe_dir_list(path, names->arena, &entries, &n));
    for (int64_t i = 0; i < n; i++) {
        struct stat info;
        char *child = lathe_path_join(names->arena, path, entries[i]);
        if (child == NULL)
            return LATHE_E_NOMEM;
        if (lstat(child, &info) != 0)
            continue; /* removed since the folder was listed */
        if (S_ISDIR(info.st_mode))
            LATHE_TRY(walk(child, names, others, depth + 1));
        else if (stat(child, &info) == 0 && S_ISREG(info.st_mode))
            LATHE_TRY(names_add(names, child));
        else if (others != NULL)
            LATHE_TRY(names_add(others, child));
    }
    return LATHE_OK;
}

lathe_status lathe_dir_walk_all(const char *path, lathe_arena *arena, char ***out_paths,
                                int64_t *out_n, char ***out_others, int64_t *out_n_others)
{
    struct names names = {arena, NULL, 0, 0}, others = {arena, NULL, 0, 0};
    *out_paths = *out_others = NULL;
    *out_n = *out_n_others = 0;
    LATHE_TRY(walk(path, &names, &others, 0));
    names_sort(&names);
    names_sort(&others);
    *out_paths = names.items;
    *out_n = names.n;
    *out_others = others.items;
    *out_n_others = others.n;
    return LATHE_OK;
}

lathe_status lathe_dir_walk(const char *path, lathe_arena *arena, char ***out_paths, int64_t *out_n)
{
    char **others = NULL;
    int64_t n_others = 0;
    return lathe_dir_walk_all(path, arena, out_paths, out_n, &others, &n_others);
}

/* Finds the files that a pattern matches: *, ? and [..] within a name, ** for any number of
 * folders. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/fs.h"

enum { MAX_PARTS = 64, MAX_DEPTH = 64 };

typedef struct matcher {
    lathe_arena *arena;
    char *parts[MAX_PARTS]; /* of the pattern, between slashes */
    int n_parts;
    char **paths;
    int64_t n, capacity;
} matcher;

static lathe_status add(matcher *m, char *path)
{
    if (m->n == m->capacity) {
        const int64_t capacity = m->capacity * 2 + 64;
        char **paths = lathe_arena_alloc(m->arena, capacity * (int64_t)sizeof *paths);
        if (paths == NULL)
            return LATHE_E_NOMEM;
        if (m->n)
            memcpy(paths, m->paths, (size_t)m->n * sizeof *paths);
        m->paths = paths;
        m->capacity = capacity;
    }
    m->paths[m->n++] = path;
    return LATHE_OK;
}

/* Adds a path that matches the whole pattern: a file, or all files of a folder. */
static lathe_status take(matcher *m, char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return LATHE_OK; /* a link to nothing */
    if (S_ISREG(info.st_mode))
        return add(m, path);
    if (!S_ISDIR(info.st_mode))
        return LATHE_OK;
    char **paths;
    int64_t n;
    LATHE_TRY(lathe_dir_walk(path, m->arena, &paths, &n));
    for (int64_t i = 0; i < n; i++)
        LATHE_TRY(add(m, paths[i]));
    return LATHE_OK;
}

static lathe_status expand(matcher *m, const char *dir, int part, int depth);

/* Matches one entry of a folder against part `part` of the pattern. */
static lathe_status expand_entry(matcher *m, const char *dir, const char *name, int part, int depth)
{
    struct stat info;
    const int last = part + 1 == m->n_parts;
    char *path = dir[0] ? lathe_path_join(m->arena, dir, name) : lathe_arena_strdup(m->arena, name);
    if (path == NULL)
        return LATHE_E_NOMEM;
    if (!strcmp(m->parts[part], "**")) { /* any folder but links and hidden ones */
        if (name[0] == '.' || lstat(path, &info) != 0)
            return LATHE_OK;
        if (S_ISDIR(info.st_mode))
            return expand(m, path, part, depth + 1);
        return last ? take(m, path) : LATHE_OK;
    }
    if (fnmatch(m->parts[part], name, FNM_PERIOD) != 0)
        return LATHE_OK;
    if (last)
        return take(m, path);
    return lathe_path_is_dir(path) ? expand(m, path, part + 1, depth + 1) : LATHE_OK;
}

static lathe_status expand(matcher *m, const char *dir, int part, int depth)
{
    char **names;
    int64_t n;
    if (depth > MAX_DEPTH)
        return lathe_error(LATHE_E_IO, "%s: folders nested deeper than %d", dir, MAX_DEPTH);
    if (strpbrk(m->parts[part], "*?[") == NULL) { /* a plain name need not be searched */
        char *path = dir[0] ? lathe_path_join(m->arena, dir, m->parts[part]) : m->parts[part];
        if (path == NULL)
            return LATHE_E_NOMEM;
        if (part + 1 == m->n_parts)
            return take(m, path);
        return lathe_path_is_dir(path) ? expand(m, path, part + 1, depth + 1) : LATHE_OK;
    }
    if (!strcmp(m->parts[part], "**") && part + 1 < m->n_parts) /* no folder at all */
        LATHE_TRY(expand(m, dir, part + 1, depth + 1));
    LATHE_TRY(lathe_dir_list(dir[0] ? dir : ".", m->arena, &names, &n));
    for (int64_t i = 0; i < n; i++)
        LATHE_TRY(expand_entry(m, dir, names[i], part, depth));
    return LATHE_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

lathe_status lathe_path_glob(const char *pattern, lathe_arena *arena, char ***out_paths,
                             int64_t *out_n)
{
    matcher m = {.arena = arena};
    char *copy = lathe_arena_strdup(arena, pattern), *rest = NULL;
    if (copy == NULL)
        return LATHE_E_NOMEM;
    for (char *part = strtok_r(copy, "/", &rest); part; part = strtok_r(NULL, "/", &rest)) {
        if (m.n_parts == MAX_PARTS)
            return lathe_error(LATHE_E_CONFIG, "%s: a pattern of more than %d parts", pattern,
                               MAX_PARTS);
        m.parts[m.n_parts++] = part;
    }
    if (m.n_parts)
        LATHE_TRY(expand(&m, pattern[0] == '/' ? "/" : "", 0, 0));
    if (m.n > 1)
        qsort(m.paths, (size_t)m.n, sizeof *m.paths, by_text);
    int64_t n = 0;
    for (int64_t i = 0; i < m.n; i++) /* ** / ** finds a file more than once */
        if (n == 0 || strcmp(m.paths[n - 1], m.paths[i]) != 0)
            m.paths[n++] = m.paths[i];
    *out_paths = m.paths;
    *out_n = n;
    return LATHE_OK;
}

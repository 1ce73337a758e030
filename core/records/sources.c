/* Lists a dataset's source files: a file, the files of a folder, or those that a pattern
 * matches. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "records/dataset.h"

static int ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

static int32_t type_by_name(const char *path)
{
    static const struct {
        const char *end;
        int32_t type;
    } table[] = {{".jsonl", LATHE_DATASET_JSONL},
                 {".ndjson", LATHE_DATASET_JSONL},
                 {".json", LATHE_DATASET_JSON},
                 {".csv", LATHE_DATASET_CSV},
                 {".tsv", LATHE_DATASET_CSV}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (ends_with(path, table[i].end))
            return table[i].type;
    return LATHE_DATASET_TEXT;
}

static const char *names_of(int32_t type)
{
    return type == LATHE_DATASET_JSONL  ? "*.jsonl or *.ndjson"
           : type == LATHE_DATASET_JSON ? "*.json"
           : type == LATHE_DATASET_CSV  ? "*.csv or *.tsv"
                                        : "files";
}

/* Files of a folder that are not read. */
typedef struct left_out {
    char **others; /* not regular files */
    int64_t n_others;
    const char **named; /* regular files whose names say another type */
    int64_t n_named;
} left_out;

static lathe_status find_paths(const char *path, lathe_arena *arena, char ***out, int64_t *out_n,
                               left_out *rest)
{
    if (lathe_path_is_dir(path))
        return lathe_dir_walk_all(path, arena, out, out_n, &rest->others, &rest->n_others);
    if (lathe_path_exists(path)) {
        *out = lathe_arena_alloc(arena, (int64_t)sizeof **out);
        *out_n = 1;
        return *out && ((*out)[0] = lathe_arena_strdup(arena, path)) ? LATHE_OK : LATHE_E_NOMEM;
    }
    if (!strpbrk(path, "*?["))
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no such file or folder to take data from", path);
    LATHE_TRY(lathe_path_glob(path, arena, out, out_n));
    return *out_n ? LATHE_OK
                  : lathe_error(LATHE_E_NOT_FOUND, "%s: no file matches this pattern", path);
}

/* The type that the names of all files share; text if they share none. */
static int32_t common_type(char *const *paths, int64_t n)
{
    const int32_t type = n ? type_by_name(paths[0]) : LATHE_DATASET_TEXT;
    for (int64_t i = 1; i < n; i++)
        if (type_by_name(paths[i]) != type)
            return LATHE_DATASET_TEXT;
    return type;
}

static lathe_status look_at(const char *path, lathe_source *out)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return lathe_error(LATHE_E_IO, "%s: cannot read it: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: is %s; expected a regular file: data is read more than once, so "
                           "write it to a file first",
                           path, lathe_mode_text(info.st_mode));
    out->path = path;
    out->bytes = info.st_size;
    out->seconds = info.st_mtim.tv_sec;
    out->nanoseconds = info.st_mtim.tv_nsec;
    return LATHE_OK;
}

static lathe_status stamp(lathe_sources *sources)
{
    lathe_sha256 *hash;
    LATHE_TRY(lathe_sha256_create(&hash));
    for (int64_t i = 0; i < sources->n; i++) {
        const lathe_source *s = &sources->list[i];
        const int64_t numbers[3] = {s->bytes, s->seconds, s->nanoseconds};
        lathe_sha256_update(hash, s->path, (int64_t)strlen(s->path) + 1);
        lathe_sha256_update(hash, numbers, sizeof numbers);
        sources->bytes += s->bytes;
    }
    lathe_sha256_finish(hash, sources->stamp);
    return LATHE_OK;
}

/* Appends ", " and up to three names. */
static void put_names(lathe_buffer *b, const char *const *names, int64_t n)
{
    lathe_buffer_puts(b, " (");
    for (int64_t i = 0; i < n && i < 3; i++)
        lathe_buffer_printf(b, "%s%s", i ? ", " : "", names[i]);
    lathe_buffer_puts(b, n > 3 ? ", ...)" : ")");
}

/* Writes the sentence about files that are not read: "corpus: 12 files are read; left out: 2 not
 * named *.jsonl or *.ndjson (corpus/a.txt, corpus/b.md)". */
static lathe_status describe(const lathe_dataset *dataset, const left_out *rest, lathe_arena *arena,
                             lathe_sources *out)
{
    lathe_buffer b = LATHE_BUFFER_INIT;
    if (rest->n_named + rest->n_others == 0)
        return LATHE_OK;
    lathe_buffer_printf(&b, "%s: %lld file%s read; left out: ", dataset->path, (long long)out->n,
                        out->n == 1 ? " is" : "s are");
    if (rest->n_named > 0) {
        lathe_buffer_printf(&b, "%lld not named %s", (long long)rest->n_named, names_of(out->type));
        put_names(&b, rest->named, rest->n_named);
    }
    if (rest->n_others > 0) {
        lathe_buffer_printf(
            &b, "%s%lld that %s", rest->n_named > 0 ? ", " : "", (long long)rest->n_others,
            rest->n_others == 1 ? "is not a regular file" : "are not regular files");
        put_names(&b, (const char *const *)rest->others, rest->n_others);
    }
    lathe_status status = b.status;
    if (status == LATHE_OK) {
        out->left_out = lathe_arena_strdup(arena, b.data);
        status = out->left_out ? LATHE_OK : LATHE_E_NOMEM;
    }
    lathe_buffer_fini(&b);
    return status;
}

lathe_status lathe_sources_list(const lathe_dataset *dataset, lathe_arena *arena,
                                lathe_sources *out)
{
    char **paths = NULL;
    int64_t n = 0;
    memset(out, 0, sizeof *out);
    left_out rest = {NULL, 0, NULL, 0};
    LATHE_TRY(find_paths(dataset->path, arena, &paths, &n, &rest));
    const int is_folder = lathe_path_is_dir(dataset->path);
    out->type = dataset->type == LATHE_DATASET_AUTO ? common_type(paths, n) : dataset->type;
    lathe_source *list = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof *list);
    rest.named = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof *rest.named);
    if (!list || !rest.named)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < n; i++)
        if (!is_folder || out->type == LATHE_DATASET_TEXT || type_by_name(paths[i]) == out->type)
            LATHE_TRY(look_at(paths[i], &list[out->n++]));
        else
            rest.named[rest.n_named++] = paths[i];
    out->list = list;
    if (!out->n)
        return lathe_error(LATHE_E_CONFIG, "%s: the folder holds no %s", dataset->path,
                           names_of(out->type));
    LATHE_TRY(describe(dataset, &rest, arena, out));
    return stamp(out);
}

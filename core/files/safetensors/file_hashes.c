/* Hashes the files of a folder, and compares them with recorded hashes. */
#include "files/safetensors/file_hashes.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/parallel.h"
#include "files/safetensors/known_hashes.h"

typedef struct hashing {
    lathe_hashed_file *files;
    int64_t n;
    atomic_llong next;
    int32_t how;
} hashing;

static void hash_item(lathe_hashed_file *f, int32_t how)
{
    struct stat st, after;
    f->bytes = stat(f->path, &st) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
    if (how == LATHE_HASH_NONE || f->bytes < 0 ||
        (f->want_hex != NULL && f->bytes != f->want_bytes))
        return; /* the file is wrong whatever its content */
    /* a hash that is remembered can acquit a file; what accuses it is read again */
    if (how == LATHE_HASH_UNKNOWN && lathe__known_hash(&st, f->hex) &&
        (f->want_hex == NULL || strcmp(f->hex, f->want_hex) == 0))
        return;
    f->status = lathe_sha256_file_parts(f->path, f->parts, f->n_parts, f->hex);
    if (f->status != LATHE_OK)
        (void)snprintf(f->message, sizeof f->message, "%s", lathe_error_message());
    else if (how == LATHE_HASH_UNKNOWN && stat(f->path, &after) == 0)
        lathe__known_hash_add(&st, &after, f->hex);
}

/* Each worker takes the next file until none is left, because sizes differ by orders of
 * magnitude. */
static void hash_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    hashing *job = arg;
    (void)begin, (void)end, (void)worker;
    for (long long i; (i = atomic_fetch_add(&job->next, 1)) < job->n;)
        hash_item(&job->files[i], job->how);
}

static int by_size(const void *a, const void *b)
{
    const lathe_hashed_file *x = a, *y = b;
    return x->want_bytes != y->want_bytes ? (x->want_bytes < y->want_bytes ? 1 : -1)
                                          : strcmp(x->path, y->path);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const lathe_hashed_file *)a)->path, ((const lathe_hashed_file *)b)->path);
}

void lathe__files_hash(lathe_hashed_file *files, int64_t n, int32_t how)
{
    hashing job = {.files = files, .n = n, .how = how};
    if (n > 1)
        qsort(files, (size_t)n, sizeof *files, by_size);
    lathe_parallel_for(lathe_parallel_threads(), 1, hash_range, &job);
    if (n > 1)
        qsort(files, (size_t)n, sizeof *files, by_path);
    if (how == LATHE_HASH_UNKNOWN)
        lathe__known_hashes_keep();
}

void lathe__files_put(lathe_buffer *out, const lathe_hashed_file *files, int64_t n, const char *gap)
{
    lathe_buffer_puts(out, "{");
    for (int64_t i = 0; i < n; i++) {
        lathe_buffer_printf(out, "%s%s", i > 0 ? "," : "", gap);
        lathe_buffer_json_string(out, files[i].name);
        lathe_buffer_printf(out, ": {\"bytes\": %lld, \"sha256\": \"%s\"}",
                            (long long)files[i].bytes, files[i].hex);
    }
}

lathe_status lathe__files_hash_all(lathe_hashed_file *files, int64_t n, int32_t how)
{
    lathe__files_hash(files, n, how);
    for (int64_t i = 0; i < n; i++) {
        if (files[i].status != LATHE_OK)
            return lathe_error(files[i].status, "%s", files[i].message);
        if (files[i].bytes < 0)
            return lathe_error(LATHE_E_IO, "%s: vanished while its folder was hashed",
                               files[i].path);
    }
    return LATHE_OK;
}

/* ---- compare ---- */

/* Whether a name stays inside the folder: relative, without empty, "." or ".." parts. */
static int name_is_inside(const char *name)
{
    for (const char *part = name;; part++) {
        const size_t n = strcspn(part, "/");
        if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return 0;
        part += n;
        if (*part == '\0')
            return 1;
    }
}

static lathe_status check_item(const lathe_hashed_file *f, int32_t how)
{
    if (f->bytes < 0)
        return lathe_error(LATHE_E_CORRUPT, "%s: missing", f->path);
    if (f->bytes != f->want_bytes)
        return lathe_error(LATHE_E_CORRUPT, "%s: %lld bytes, recorded: %lld: %s", f->path,
                           (long long)f->bytes, (long long)f->want_bytes,
                           f->bytes < f->want_bytes ? "truncated" : "something was added");
    if (f->status != LATHE_OK)
        return lathe_error(f->status, "%s", f->message);
    if (how != LATHE_HASH_NONE && strcmp(f->hex, f->want_hex) != 0)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: its content changed (SHA-256 %.12s..., recorded: %.12s...)",
                           f->path, f->hex, f->want_hex);
    return LATHE_OK;
}

lathe_status lathe__files_of_json(const char *dir, json_t *list, lathe_arena *arena,
                                  lathe_hashed_file **out, int64_t *out_n)
{
    lathe_hashed_file *files =
        lathe_arena_alloc(arena, (int64_t)((json_object_size(list) + 1) * sizeof *files));
    if (files == NULL)
        return LATHE_E_NOMEM;
    int64_t n = 0;
    const char *name;
    json_t *entry;
    json_object_foreach(list, name, entry)
    {
        const json_t *bytes = json_object_get(entry, "bytes");
        lathe_hashed_file *f = &files[n++];
        f->name = name;
        f->parts = NULL;
        f->n_parts = 0;
        f->want_hex = json_string_value(json_object_get(entry, "sha256"));
        f->want_bytes = json_integer_value(bytes);
        if (!name_is_inside(name) || f->want_hex == NULL || !json_is_integer(bytes))
            return lathe_error(LATHE_E_CORRUPT,
                               "%s: malformed entry for %s in the recorded list of files", dir,
                               name);
        f->path = lathe_path_join(arena, dir, name);
        if (f->path == NULL)
            return LATHE_E_NOMEM;
    }
    *out = files;
    *out_n = n;
    return LATHE_OK;
}

lathe_status lathe__files_check(const lathe_hashed_file *files, int64_t n, int32_t how,
                                lathe_damage_fn report, void *arg)
{
    lathe_status first = LATHE_OK;
    int64_t where = 0;
    for (int64_t i = 0; i < n; i++) {
        const lathe_status status = check_item(&files[i], how);
        if (status == LATHE_OK)
            continue;
        if (report != NULL)
            report(arg, lathe_error_message());
        if (first == LATHE_OK)
            where = i;
        first = first == LATHE_OK ? status : first;
        if (report == NULL)
            break;
    }
    return first == LATHE_OK ? LATHE_OK : check_item(&files[where], how);
}

/* ---- a list of its own ---- */

/* The list of one file: `path` names it instead of a folder. */
static lathe_status list_file(const char *path, lathe_buffer *out)
{
    const char *slash = strrchr(path, '/');
    lathe_hashed_file file = {.name = slash != NULL ? slash + 1 : path, .path = path};
    LATHE_TRY(lathe__files_hash_all(&file, 1, LATHE_HASH_UNKNOWN));
    lathe__files_put(out, &file, 1, " ");
    lathe_buffer_puts(out, "}");
    return out->status;
}

lathe_status lathe_files_list(const char *dir, int32_t (*take)(const char *name), lathe_buffer *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char **names = NULL;
    int64_t n_names = 0, n = 0;
    if (lathe_path_exists(dir) && !lathe_path_is_dir(dir))
        return list_file(dir, out);
    lathe_status status = lathe_dir_list(dir, &arena, &names, &n_names);
    lathe_hashed_file *files = lathe_arena_alloc(&arena, (n_names + 1) * (int64_t)sizeof *files);
    if (!files)
        status = LATHE_E_NOMEM;
    for (int64_t i = 0; i < n_names && status == LATHE_OK; i++) {
        struct stat st;
        const char *path = lathe_path_join(&arena, dir, names[i]);
        if (!path)
            status = LATHE_E_NOMEM;
        else if (take(names[i]) && stat(path, &st) == 0 && S_ISREG(st.st_mode))
            files[n++] = (lathe_hashed_file){
                .name = names[i], .path = path, .want_bytes = (int64_t)st.st_size};
    }
    if (status == LATHE_OK)
        status = lathe__files_hash_all(files, n, LATHE_HASH_UNKNOWN);
    if (status == LATHE_OK) {
        lathe__files_put(out, files, n, " ");
        lathe_buffer_puts(out, "}");
        status = out->status;
    }
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_files_compare(const char *dir, const json_t *list, int32_t how,
                                 lathe_damage_fn report, void *arg)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_hashed_file *files = NULL;
    int64_t n = 0;
    lathe_status status =
        json_is_object(list)
            ? LATHE_OK
            : lathe_error(LATHE_E_CORRUPT, "%s: the recorded list of files is damaged", dir);
    if (status == LATHE_OK)
        status = lathe__files_of_json(dir, (json_t *)(uintptr_t)list, &arena, &files, &n);
    if (status == LATHE_OK && n == 1 && lathe_path_exists(dir) && !lathe_path_is_dir(dir))
        files[0].path = dir; /* one file, whatever its name is by now */
    if (status == LATHE_OK) {
        lathe__files_hash(files, n, how);
        status = lathe__files_check(files, n, how, report, arg);
    } else if (report) {
        report(arg, lathe_error_message());
    }
    lathe_arena_fini(&arena);
    return status;
}

/* Writes a manifest for a folder, and checks a folder against its manifest. */
#include "io/manifest.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/json_memory.h"
#include "base/parallel.h"

#define SELF_BEGIN "  \"self\": \""
#define SELF_END "\"\n}\n"
enum {
    SELF_BYTES = sizeof SELF_BEGIN - 1 + 64 + sizeof SELF_END - 1,
    MOST_BYTES = 256 << 20,
    MOST_META = 1 << 20
};

/* One file to hash. The error record is per thread, so the item keeps a worker's message. */
typedef struct item {
    const char *name; /* relative to the folder */
    const char *path;
    int64_t bytes; /* actual size; -1: there is no regular file */
    char hex[65];
    lathe_status status;
    char message[400];
    /* expected size, when verifying */
    int64_t want_bytes;
    const char *want_hex;
    lathe_file_part *parts; /* parts to read while hashing */
    int64_t n_parts;
} item;

static lathe_status sha256_text(const char *text, int64_t bytes, char hex[65])
{
    lathe_sha256 *hash = NULL;
    LATHE_TRY(lathe_sha256_create(&hash));
    lathe_sha256_update(hash, text, bytes);
    lathe_sha256_finish(hash, hex);
    return LATHE_OK;
}

typedef struct hashing {
    item *items;
    int64_t n;
    atomic_llong next;
    int32_t only_sizes;
} hashing;

static void hash_item(item *f, int32_t only_size)
{
    struct stat st;
    f->bytes = stat(f->path, &st) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
    if (only_size || f->bytes < 0 || (f->want_hex != NULL && f->bytes != f->want_bytes))
        return; /* the file is wrong whatever its content */
    f->status = lathe_sha256_file_parts(f->path, f->parts, f->n_parts, f->hex);
    if (f->status != LATHE_OK)
        (void)snprintf(f->message, sizeof f->message, "%s", lathe_error_message());
}

/* Each worker takes the next file until none is left, because sizes differ by orders of
 * magnitude. */
static void hash_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    hashing *job = arg;
    (void)begin, (void)end, (void)worker;
    for (long long i; (i = atomic_fetch_add(&job->next, 1)) < job->n;)
        hash_item(&job->items[i], job->only_sizes);
}

static int by_size(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return x->want_bytes != y->want_bytes ? (x->want_bytes < y->want_bytes ? 1 : -1)
                                          : strcmp(x->path, y->path);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const item *)a)->path, ((const item *)b)->path);
}

/* Hashes the largest files first, then restores the order by path. */
static void hash_all(item *items, int64_t n, int32_t only_sizes)
{
    hashing job = {.items = items, .n = n, .only_sizes = only_sizes};
    if (n > 1)
        qsort(items, (size_t)n, sizeof *items, by_size);
    lathe_parallel_for(lathe_parallel_threads(), 1, hash_range, &job);
    if (n > 1)
        qsort(items, (size_t)n, sizeof *items, by_path);
}

static void manifest_text(lathe_buffer *out, const item *items, int64_t n, const char *meta_json)
{
    lathe_buffer_puts(out, "{\n  \"format\": \"lathe-manifest\",\n  \"version\": 2,\n");
    if (meta_json != NULL)
        lathe_buffer_printf(out, "  \"meta\": %s,\n", meta_json);
    lathe_buffer_puts(out, "  \"files\": {");
    for (int64_t i = 0; i < n; i++) {
        lathe_buffer_puts(out, i > 0 ? ",\n    " : "\n    ");
        lathe_buffer_json_string(out, items[i].name);
        lathe_buffer_printf(out, ": {\"bytes\": %lld, \"sha256\": \"%s\"}",
                            (long long)items[i].bytes, items[i].hex);
    }
    lathe_buffer_puts(out, "\n  },\n");
}

lathe_status lathe_manifest_seal(lathe_buffer *text)
{
    char hex[65];
    LATHE_TRY(text->status);
    LATHE_TRY(sha256_text(text->data, text->len, hex));
    lathe_buffer_printf(text, SELF_BEGIN "%s" SELF_END, hex);
    return text->status;
}

static lathe_status write_items(const char *path, item *items, int64_t n, const char *meta_json)
{
    hash_all(items, n, 0);
    for (int64_t i = 0; i < n; i++) {
        if (items[i].status != LATHE_OK)
            return lathe_error(items[i].status, "%s", items[i].message);
        if (items[i].bytes < 0)
            return lathe_error(LATHE_E_IO, "%s: vanished while its folder was hashed",
                               items[i].path);
    }
    lathe_buffer text = LATHE_BUFFER_INIT;
    manifest_text(&text, items, n, meta_json);
    lathe_status status = lathe_manifest_seal(&text);
    if (status == LATHE_OK)
        status = lathe_file_write_atomic(path, text.data, text.len);
    lathe_buffer_fini(&text);
    return status;
}

static lathe_status write_folder(const char *dir, const char *meta_json, lathe_arena *arena)
{
    char **paths = NULL;
    int64_t n = 0, kept = 0;
    LATHE_TRY(lathe_dir_walk(dir, arena, &paths, &n));
    const char *manifest = lathe_path_join(arena, dir, LATHE_MANIFEST_NAME);
    item *items = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof *items);
    if (manifest == NULL || items == NULL)
        return LATHE_E_NOMEM;
    size_t skip = strlen(dir);
    while (skip > 0 && dir[skip - 1] == '/')
        skip--;
    for (int64_t i = 0; i < n; i++) {
        const char *name = paths[i] + skip;
        while (*name == '/')
            name++;
        if (strcmp(name, LATHE_MANIFEST_NAME) == 0)
            continue;
        struct stat st;
        items[kept].name = name;
        items[kept].parts = NULL;
        items[kept].n_parts = 0;
        items[kept].want_bytes = stat(paths[i], &st) == 0 ? (int64_t)st.st_size : 0;
        items[kept++].path = paths[i];
    }
    return write_items(manifest, items, kept, meta_json);
}

lathe_status lathe_manifest_write(const char *dir, const char *meta_json)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_status status = write_folder(dir, meta_json, &arena);
    lathe_arena_fini(&arena);
    return status;
}

/* ---- verify ---- */

/* Checks the "self" line against the bytes before it. */
static lathe_status check_self(const char *path, const char *text, int64_t bytes)
{
    char hex[65], want[SELF_BYTES + 1];
    if (bytes < SELF_BYTES)
        return lathe_error(LATHE_E_CORRUPT, "%s: truncated, or not a lathe-manifest of version 2",
                           path);
    LATHE_TRY(sha256_text(text, bytes - SELF_BYTES, hex));
    (void)snprintf(want, sizeof want, SELF_BEGIN "%s" SELF_END, hex);
    if (memcmp(text + bytes - SELF_BYTES, want, SELF_BYTES) != 0)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: its content does not match the SHA-256 in its last line: damaged, "
                           "or not a lathe-manifest of version 2",
                           path);
    return LATHE_OK;
}

static lathe_status parse(const char *path, const char *text, int64_t bytes, json_t **out)
{
    LATHE_TRY(check_self(path, text, bytes));
    const lathe_status status = lathe_json_load(path, text, bytes, out);
    if (status != LATHE_OK)
        return lathe_error_context(status == LATHE_E_PARSE ? LATHE_E_CORRUPT : status, "manifest");
    const char *format = json_string_value(json_object_get(*out, "format"));
    const json_t *version = json_object_get(*out, "version");
    if (format != NULL && strcmp(format, "lathe-manifest") == 0 &&
        json_integer_value(version) == 2 && json_is_object(json_object_get(*out, "files")))
        return LATHE_OK;
    json_decref(*out);
    *out = NULL;
    return lathe_error(LATHE_E_CORRUPT, "%s: not a lathe-manifest of version 2", path);
}

static lathe_status manifest_load(const char *dir, lathe_arena *arena, json_t **out)
{
    char *text = NULL;
    int64_t bytes = 0;
    const char *path = lathe_path_join(arena, dir, LATHE_MANIFEST_NAME);
    if (path == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_file_read(path, MOST_BYTES, &text, &bytes));
    const lathe_status status = parse(path, text, bytes, out);
    free(text);
    return status;
}

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

static lathe_status check_item(const item *f, int32_t hashes)
{
    if (f->bytes < 0)
        return lathe_error(LATHE_E_CORRUPT, "%s: missing", f->path);
    if (f->bytes != f->want_bytes)
        return lathe_error(LATHE_E_CORRUPT, "%s: %lld bytes, the manifest says %lld: %s", f->path,
                           (long long)f->bytes, (long long)f->want_bytes,
                           f->bytes < f->want_bytes ? "truncated" : "something was added");
    if (f->status != LATHE_OK)
        return lathe_error(f->status, "%s", f->message);
    if (hashes && strcmp(f->hex, f->want_hex) != 0)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: its content changed (SHA-256 %.12s..., the manifest says %.12s...)",
                           f->path, f->hex, f->want_hex);
    return LATHE_OK;
}

static lathe_status list_files(const char *dir, json_t *files, lathe_arena *arena, item **out,
                               int64_t *out_n)
{
    item *items =
        lathe_arena_alloc(arena, (int64_t)((json_object_size(files) + 1) * sizeof *items));
    if (items == NULL)
        return LATHE_E_NOMEM;
    int64_t n = 0;
    const char *name;
    json_t *entry;
    json_object_foreach(files, name, entry)
    {
        const json_t *bytes = json_object_get(entry, "bytes");
        item *f = &items[n++];
        f->name = name;
        f->parts = NULL;
        f->n_parts = 0;
        f->want_hex = json_string_value(json_object_get(entry, "sha256"));
        f->want_bytes = json_integer_value(bytes);
        if (!name_is_inside(name) || f->want_hex == NULL || !json_is_integer(bytes))
            return lathe_error(LATHE_E_CORRUPT, "%s/%s: malformed entry for %s", dir,
                               LATHE_MANIFEST_NAME, name);
        f->path = lathe_path_join(arena, dir, name);
        if (f->path == NULL)
            return LATHE_E_NOMEM;
    }
    *out = items;
    *out_n = n;
    return LATHE_OK;
}

/* Checks every file. Returns the status of the first bad one by path, with its message. */
static lathe_status check_all(const item *items, int64_t n, int32_t hashes, lathe_damage_fn report,
                              void *arg)
{
    lathe_status first = LATHE_OK;
    int64_t where = 0;
    for (int64_t i = 0; i < n; i++) {
        const lathe_status status = check_item(&items[i], hashes);
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
    return first == LATHE_OK ? LATHE_OK : check_item(&items[where], hashes);
}

/* Assigns each part to the item of its file. */
static lathe_status place_parts(item *items, int64_t n, const lathe_manifest_part *parts,
                                int64_t n_parts, lathe_arena *arena)
{
    lathe_file_part *copy = lathe_arena_alloc(arena, (n_parts + 1) * (int64_t)sizeof *copy);
    if (copy == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < n_parts; i++) {
        int64_t k = 0;
        while (k < n && strcmp(items[k].path, parts[i].path) != 0)
            k++;
        if (k == n)
            return lathe_error(LATHE_E_ARG, "%s is not in the manifest", parts[i].path);
        copy[i] = parts[i].part;
        if (items[k].n_parts++ == 0)
            items[k].parts = &copy[i];
    }
    return LATHE_OK;
}

typedef struct survey {
    int32_t hashes;
    lathe_damage_fn report;
    void *arg;
    const lathe_manifest_part *parts;
    int64_t n_parts;
} survey;

static lathe_status look_through(const char *dir, const survey *s, int64_t *out_bytes)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *manifest = NULL;
    item *items = NULL;
    int64_t n = 0, total = 0;
    lathe_status status = manifest_load(dir, &arena, &manifest);
    if (status == LATHE_OK)
        status = list_files(dir, json_object_get(manifest, "files"), &arena, &items, &n);
    if (status == LATHE_OK && s->n_parts > 0)
        status = place_parts(items, n, s->parts, s->n_parts, &arena);
    if (status == LATHE_OK) {
        hash_all(items, n, !s->hashes);
        for (int64_t i = 0; i < n; i++)
            total += items[i].want_bytes;
        status = check_all(items, n, s->hashes, s->report, s->arg);
    } else if (s->report != NULL) {
        s->report(s->arg, lathe_error_message());
    }
    if (out_bytes != NULL)
        *out_bytes = total;
    json_decref(manifest);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_manifest_survey(const char *dir, int32_t hashes, lathe_damage_fn report,
                                   void *arg, int64_t *out_bytes)
{
    const survey s = {.hashes = hashes, .report = report, .arg = arg};
    return look_through(dir, &s, out_bytes);
}

lathe_status lathe_manifest_verify_read(const char *dir, const lathe_manifest_part *parts,
                                        int64_t n_parts)
{
    const survey s = {.hashes = 1, .parts = parts, .n_parts = n_parts};
    return look_through(dir, &s, NULL);
}

lathe_status lathe_manifest_verify(const char *dir)
{
    return lathe_manifest_survey(dir, 1, NULL, NULL, NULL);
}

/* Returns NULL if memory runs out; jansson itself would silently omit values that it cannot
 * allocate. */
static char *dump(const json_t *value)
{
    lathe_json_memory_begin(MOST_META);
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (lathe_json_memory_failed()) {
        json_free_t release;
        json_get_alloc_funcs(NULL, &release);
        release(text);
        text = NULL;
    }
    lathe_json_memory_end();
    return text;
}

lathe_status lathe_manifest_meta(const char *dir, char **out_json)
{
    *out_json = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *manifest = NULL;
    lathe_status status = manifest_load(dir, &arena, &manifest);
    const json_t *meta = json_object_get(manifest, "meta");
    if (status == LATHE_OK && meta != NULL) {
        *out_json = dump(meta);
        if (*out_json == NULL)
            status = lathe_error(LATHE_E_NOMEM, "no memory for the meta data of %s", dir);
    }
    json_decref(manifest);
    lathe_arena_fini(&arena);
    return status;
}

/* Manifests: written over a folder, checked against it. */
#include "io/manifest.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/parallel.h"

/* One file to hash; the error record is per thread, so a worker's message is carried along. */
typedef struct item {
    const char *name; /* relative to the folder */
    const char *path;
    int64_t bytes; /* seen; -1: no regular file there */
    char hex[65];
    lathe_status status;
    char message[400];
    /* expected, when verifying */
    int64_t want_bytes;
    const char *want_hex;
} item;

static void hash_range(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    item *items = arg;
    for (int64_t i = begin; i < end; i++) {
        item *f = &items[i];
        struct stat st;
        f->bytes = stat(f->path, &st) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
        if (f->bytes < 0 || (f->want_hex != NULL && f->bytes != f->want_bytes))
            continue; /* wrong whatever its content */
        f->status = lathe_sha256_file(f->path, f->hex);
        if (f->status != LATHE_OK) {
            strncpy(f->message, lathe_error_message(), sizeof f->message - 1);
            f->message[sizeof f->message - 1] = '\0';
        }
    }
}

static void manifest_text(lathe_buffer *out, const item *items, int64_t n, const char *meta_json)
{
    lathe_buffer_puts(out, "{\n  \"format\": \"lathe-manifest\",\n  \"version\": 1,\n");
    if (meta_json != NULL)
        lathe_buffer_printf(out, "  \"meta\": %s,\n", meta_json);
    lathe_buffer_puts(out, "  \"files\": {");
    for (int64_t i = 0; i < n; i++) {
        lathe_buffer_puts(out, i > 0 ? ",\n    " : "\n    ");
        lathe_buffer_json_string(out, items[i].name);
        lathe_buffer_printf(out, ": {\"bytes\": %lld, \"sha256\": \"%s\"}",
                            (long long)items[i].bytes, items[i].hex);
    }
    lathe_buffer_puts(out, "\n  }\n}\n");
}

static lathe_status write_items(const char *path, item *items, int64_t n, const char *meta_json)
{
    lathe_parallel_for(n, 1, hash_range, items);
    for (int64_t i = 0; i < n; i++) {
        if (items[i].status != LATHE_OK)
            return lathe_error(items[i].status, "%s", items[i].message);
        if (items[i].bytes < 0)
            return lathe_error(LATHE_E_IO, "%s: vanished while its folder was hashed",
                               items[i].path);
    }
    lathe_buffer text = LATHE_BUFFER_INIT;
    manifest_text(&text, items, n, meta_json);
    lathe_status status = text.status;
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
        items[kept].name = name;
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

static lathe_status manifest_load(const char *dir, lathe_arena *arena, json_t **out)
{
    const char *path = lathe_path_join(arena, dir, LATHE_MANIFEST_NAME);
    if (path == NULL)
        return LATHE_E_NOMEM;
    if (!lathe_path_exists(path))
        return lathe_error(LATHE_E_NOT_FOUND, "%s: no such file", path);
    if (lathe_json_load_file(path, out) != LATHE_OK)
        return lathe_error_context(LATHE_E_CORRUPT, "manifest");
    const char *format = json_string_value(json_object_get(*out, "format"));
    const json_t *version = json_object_get(*out, "version");
    if (format == NULL || strcmp(format, "lathe-manifest") != 0 ||
        json_integer_value(version) != 1 || !json_is_object(json_object_get(*out, "files"))) {
        json_decref(*out);
        *out = NULL;
        return lathe_error(LATHE_E_CORRUPT, "%s: not a lathe-manifest of version 1", path);
    }
    return LATHE_OK;
}

/* A name that stays inside the folder: relative, without empty, "." or ".." parts. */
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

static lathe_status check_item(const item *f)
{
    if (f->bytes < 0)
        return lathe_error(LATHE_E_CORRUPT, "%s: missing", f->path);
    if (f->bytes != f->want_bytes)
        return lathe_error(LATHE_E_CORRUPT, "%s: %lld bytes, the manifest says %lld: %s", f->path,
                           (long long)f->bytes, (long long)f->want_bytes,
                           f->bytes < f->want_bytes ? "truncated" : "something was added");
    if (f->status != LATHE_OK)
        return lathe_error(f->status, "%s", f->message);
    if (strcmp(f->hex, f->want_hex) != 0)
        return lathe_error(LATHE_E_CORRUPT,
                           "%s: its content changed (SHA-256 %.12s..., the manifest says %.12s...)",
                           f->path, f->hex, f->want_hex);
    return LATHE_OK;
}

static lathe_status verify_files(const char *dir, json_t *files, lathe_arena *arena)
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
        f->want_hex = json_string_value(json_object_get(entry, "sha256"));
        f->want_bytes = json_integer_value(bytes);
        if (!name_is_inside(name) || f->want_hex == NULL || !json_is_integer(bytes))
            return lathe_error(LATHE_E_CORRUPT, "%s/%s: malformed entry for %s", dir,
                               LATHE_MANIFEST_NAME, name);
        f->path = lathe_path_join(arena, dir, name);
        if (f->path == NULL)
            return LATHE_E_NOMEM;
    }
    lathe_parallel_for(n, 1, hash_range, items);
    for (int64_t i = 0; i < n; i++)
        LATHE_TRY(check_item(&items[i]));
    return LATHE_OK;
}

lathe_status lathe_manifest_verify(const char *dir)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *manifest = NULL;
    lathe_status status = manifest_load(dir, &arena, &manifest);
    if (status == LATHE_OK)
        status = verify_files(dir, json_object_get(manifest, "files"), &arena);
    json_decref(manifest);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_manifest_meta(const char *dir, char **out_json)
{
    *out_json = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *manifest = NULL;
    lathe_status status = manifest_load(dir, &arena, &manifest);
    const json_t *meta = json_object_get(manifest, "meta");
    if (status == LATHE_OK && meta != NULL) {
        *out_json = json_dumps(meta, JSON_COMPACT | JSON_ENCODE_ANY);
        if (*out_json == NULL)
            status = lathe_error(LATHE_E_NOMEM, "no memory for the meta data of %s", dir);
    }
    json_decref(manifest);
    lathe_arena_fini(&arena);
    return status;
}

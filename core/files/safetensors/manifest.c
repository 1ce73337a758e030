/* Writes a manifest for a folder, and checks a folder against its manifest. */
#include "files/safetensors/manifest.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/json/json_memory.h"

#define HEAD "{\n  \"format\": \"lathe-manifest\",\n"
#define SELF_BEGIN "  \"self\": \""
#define SELF_END "\"\n}\n"
enum {
    SELF_BYTES = sizeof SELF_BEGIN - 1 + 64 + sizeof SELF_END - 1,
    MAX_BYTES = 256 << 20,
    MAX_META = 1 << 20
};

static void manifest_text(lathe_buffer *out, const lathe_hashed_file *items, int64_t n,
                          const char *meta_json)
{
    lathe_buffer_puts(out, HEAD "  \"version\": 2,\n");
    if (meta_json != NULL)
        lathe_buffer_printf(out, "  \"meta\": %s,\n", meta_json);
    lathe_buffer_puts(out, "  \"files\": ");
    lathe__files_put(out, items, n, "\n    ");
    lathe_buffer_puts(out, "\n  },\n");
}

lathe_status lathe_manifest_seal(lathe_buffer *text)
{
    char hex[65];
    LATHE_TRY(text->status);
    LATHE_TRY(lathe_sha256_bytes(text->data, text->len, hex));
    lathe_buffer_printf(text, SELF_BEGIN "%s" SELF_END, hex);
    return text->status;
}

static lathe_status write_items(const char *path, lathe_hashed_file *items, int64_t n,
                                const char *meta_json)
{
    LATHE_TRY(lathe__files_hash_all(items, n, LATHE_HASH_ALL));
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
    int64_t n = 0, n_kept = 0;
    LATHE_TRY(lathe_dir_walk(dir, arena, &paths, &n));
    const char *manifest = lathe_path_join(arena, dir, LATHE_MANIFEST_NAME);
    lathe_hashed_file *items = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof *items);
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
        items[n_kept++] =
            (lathe_hashed_file){.name = name,
                                .path = paths[i],
                                .want_bytes = stat(paths[i], &st) == 0 ? (int64_t)st.st_size : 0};
    }
    return write_items(manifest, items, n_kept, meta_json);
}

lathe_status lathe_manifest_write(const char *dir, const char *meta_json)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_status status = write_folder(dir, meta_json, &arena);
    lathe_arena_fini(&arena);
    return status;
}

int32_t lathe_manifest_is_own(const char *dir)
{
    char begin[sizeof HEAD - 1], path[PATH_MAX]; /* no memory is taken: "no" is an answer */
    const int n = snprintf(path, sizeof path, "%s/%s", dir, LATHE_MANIFEST_NAME);
    const int fd =
        n > 0 && n < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    const int32_t is_own = fd >= 0 && read(fd, begin, sizeof begin) == (ssize_t)sizeof begin &&
                           memcmp(begin, HEAD, sizeof begin) == 0;
    if (fd >= 0)
        (void)close(fd);
    return is_own;
}

/* ---- verify ---- */

/* Checks the "self" line against the bytes before it. */
static lathe_status check_self(const char *path, const char *text, int64_t bytes)
{
    char hex[65], want[SELF_BYTES + 1];
    if (bytes < SELF_BYTES)
        return lathe_error(LATHE_E_CORRUPT, "%s: truncated, or not a lathe-manifest of version 2",
                           path);
    LATHE_TRY(lathe_sha256_bytes(text, bytes - SELF_BYTES, hex));
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
    LATHE_TRY(lathe_file_read(path, MAX_BYTES, &text, &bytes));
    const lathe_status status = parse(path, text, bytes, out);
    free(text);
    return status;
}

/* Assigns each part to the item of its file. */
static lathe_status place_parts(lathe_hashed_file *items, int64_t n,
                                const lathe_manifest_part *parts, int64_t n_parts,
                                lathe_arena *arena)
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
    int32_t how;        /* LATHE_HASH_* */
    const char *prefix; /* NULL: all files; otherwise those directly in this folder: "average/" */
    int32_t (*take)(const char *name); /* with a prefix: the names after it */
    lathe_damage_fn report;
    void *arg;
    const lathe_manifest_part *parts;
    int64_t n_parts;
} survey;

/* Keeps the files that the survey is about. */
static int64_t select_items(const survey *s, lathe_hashed_file *items, int64_t n)
{
    const size_t skip = s->prefix != NULL ? strlen(s->prefix) : 0;
    int64_t n_kept = 0;
    if (s->prefix == NULL)
        return n;
    for (int64_t i = 0; i < n; i++) {
        const char *name = items[i].name;
        if (strncmp(name, s->prefix, skip) == 0 && strchr(name + skip, '/') == NULL &&
            s->take(name + skip))
            items[n_kept++] = items[i];
    }
    return n_kept;
}

static lathe_status look_through(const char *dir, const survey *s, int64_t *out_bytes)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *manifest = NULL;
    lathe_hashed_file *items = NULL;
    int64_t n = 0, total = 0;
    lathe_status status = manifest_load(dir, &arena, &manifest);
    if (status != LATHE_OK)
        goto out;
    status = lathe__files_of_json(dir, json_object_get(manifest, "files"), &arena, &items, &n);
    if (status != LATHE_OK)
        goto out;
    n = select_items(s, items, n);
    if (s->n_parts > 0)
        status = place_parts(items, n, s->parts, s->n_parts, &arena);
out:
    if (status == LATHE_OK) {
        lathe__files_hash(items, n, s->how);
        for (int64_t i = 0; i < n; i++)
            total += items[i].want_bytes;
        status = lathe__files_check(items, n, s->how, s->report, s->arg);
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
    const survey s = {
        .how = hashes ? LATHE_HASH_ALL : LATHE_HASH_NONE, .report = report, .arg = arg};
    return look_through(dir, &s, out_bytes);
}

lathe_status lathe_manifest_compare(const char *dir, const char *prefix,
                                    int32_t (*take)(const char *name), lathe_damage_fn report,
                                    void *arg)
{
    const survey s = {
        .how = LATHE_HASH_UNKNOWN, .prefix = prefix, .take = take, .report = report, .arg = arg};
    return look_through(dir, &s, NULL);
}

lathe_status lathe_manifest_self(const char *dir, char out_hex[65])
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char *text = NULL;
    int64_t bytes = 0;
    const char *path = lathe_path_join(&arena, dir, LATHE_MANIFEST_NAME);
    lathe_status status = path ? lathe_file_read(path, MAX_BYTES, &text, &bytes) : LATHE_E_NOMEM;
    if (status == LATHE_OK)
        status = check_self(path, text, bytes);
    if (status == LATHE_OK)
        (void)snprintf(out_hex, 65, "%.64s",
                       text + bytes - SELF_BYTES + (int64_t)sizeof SELF_BEGIN - 1);
    free(text);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe_manifest_verify_read(const char *dir, const lathe_manifest_part *parts,
                                        int64_t n_parts)
{
    const survey s = {.how = LATHE_HASH_ALL, .parts = parts, .n_parts = n_parts};
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
    lathe_json_memory_begin(MAX_META);
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

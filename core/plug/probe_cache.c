/* Remembers which plugin files were tried before. Errors here only cost a new trial, except that
 * memory runs out while the cache is read. */
#include "plug/probe_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/buffer.h"
#include "base/child.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"

extern const char *lathe_version(void);

enum { MAX_ENTRIES = 2048, MAX_FILE_BYTES = 1 << 20, HUNG_SECONDS = 3600 };

/* Path of the cache, in arena; NULL: no folder for it. LATHE_E_NOMEM. */
static lathe_status cache_path(lathe_arena *arena, const char **out)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *out = NULL;
    if (cache != NULL && cache[0] == '/')
        *out = lathe_arena_printf(arena, "%s/lathe/plugins", cache);
    else if (home != NULL && home[0] == '/')
        *out = lathe_arena_printf(arena, "%s/.cache/lathe/plugins", home);
    else
        return LATHE_OK;
    return *out != NULL ? LATHE_OK : LATHE_E_NOMEM;
}

/* Parses one line. Returns 0 if it is not an entry. */
static int parse(const char *line, lathe_probe_entry *out)
{
    int end = 0;
    memset(out, 0, sizeof *out);
    const int n = sscanf(line,
                         "%64[0-9a-f] %" SCNu64 " %" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64
                         " %" SCNd32 " %" SCNd64 "%n",
                         out->hash, &out->device, &out->inode, &out->bytes, &out->mtime_ns,
                         &out->ctime_ns, &out->how, &out->when, &end);
    return n == 8 && line[end] == '\0' && strlen(out->hash) == 64 &&
           (out->how == LATHE_CHILD_DONE || out->how == LATHE_CHILD_HUNG);
}

static void add(lathe_probe_cache *cache, const lathe_probe_entry *entry)
{
    if (cache->entries == NULL || cache->n == MAX_ENTRIES)
        return;
    cache->entries[cache->n++] = *entry;
}

/* Adds the entries of the file's text, which is cut into lines. */
static void add_lines(lathe_probe_cache *cache, char *text)
{
    char *rest = NULL, header[128];
    (void)snprintf(header, sizeof header, "lathe plugins 1 %s", lathe_version());
    const char *line = strtok_r(text, "\n", &rest);
    const int is_ours = line != NULL && strcmp(line, header) == 0;
    lathe_probe_entry entry;
    while (is_ours && (line = strtok_r(NULL, "\n", &rest)) != NULL)
        if (parse(line, &entry))
            add(cache, &entry);
}

lathe_status lathe_probe_cache_load(lathe_probe_cache *cache)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    char *text = NULL;
    const char *path = NULL;
    int64_t bytes = 0;
    *cache = (lathe_probe_cache){.entries = malloc(MAX_ENTRIES * sizeof *cache->entries)};
    lathe_status status = cache->entries != NULL ? cache_path(&arena, &path) : LATHE_E_NOMEM;
    if (status == LATHE_OK && path != NULL && lathe_path_exists(path))
        status = lathe_file_read(path, MAX_FILE_BYTES, &text, &bytes);
    if (status == LATHE_OK && text != NULL)
        add_lines(cache, text);
    free(text);
    lathe_arena_fini(&arena);
    if (status == LATHE_E_NOMEM) {
        free(cache->entries);
        *cache = (lathe_probe_cache){.entries = NULL};
        return lathe_error(status, "no memory to read the cache of tried plugins");
    }
    lathe_error_clear();
    return LATHE_OK;
}

/* Fills an entry except for its hash and result. Returns 0 if there is no such regular file. */
static int identify(const char *path, lathe_probe_entry *out)
{
    struct stat info;
    memset(out, 0, sizeof *out);
    /* opening a FIFO would wait for a writer */
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return 0;
    out->device = info.st_dev;
    out->inode = info.st_ino;
    out->bytes = info.st_size;
    out->mtime_ns = info.st_mtim.tv_sec * INT64_C(1000000000) + info.st_mtim.tv_nsec;
    out->ctime_ns = info.st_ctim.tv_sec * INT64_C(1000000000) + info.st_ctim.tv_nsec;
    return 1;
}

static int is_current(const lathe_probe_entry *entry)
{
    return entry->how == LATHE_CHILD_DONE || (int64_t)time(NULL) - entry->when < HUNG_SECONDS;
}

int32_t lathe_probe_cache_get(lathe_probe_cache *cache, const char *path)
{
    lathe_probe_entry file;
    if (cache->n == 0 || !identify(path, &file))
        return -1;
    for (int64_t i = 0; i < cache->n; i++) {
        const lathe_probe_entry *e = &cache->entries[i];
        if (e->inode == file.inode && e->device == file.device && e->bytes == file.bytes &&
            e->mtime_ns == file.mtime_ns && e->ctime_ns == file.ctime_ns && is_current(e))
            return e->how;
    }
    if (lathe_sha256_file(path, file.hash) != LATHE_OK) {
        lathe_error_clear();
        return -1;
    }
    for (int64_t i = 0; i < cache->n; i++)
        if (strcmp(cache->entries[i].hash, file.hash) == 0 && is_current(&cache->entries[i])) {
            file.how = cache->entries[i].how;
            file.when = cache->entries[i].when;
            add(cache, &file);
            cache->is_changed = 1;
            return file.how;
        }
    return -1;
}

void lathe_probe_cache_put(lathe_probe_cache *cache, const char *path, int32_t how)
{
    lathe_probe_entry entry;
    if ((how != LATHE_CHILD_DONE && how != LATHE_CHILD_HUNG) || !identify(path, &entry))
        return;
    if (lathe_sha256_file(path, entry.hash) != LATHE_OK) {
        lathe_error_clear();
        return;
    }
    entry.how = how;
    entry.when = (int64_t)time(NULL);
    if (cache->n == MAX_ENTRIES) /* full: drop the older half */
        memmove(cache->entries, cache->entries + MAX_ENTRIES / 2,
                (size_t)(cache->n = MAX_ENTRIES / 2) * sizeof *cache->entries);
    add(cache, &entry);
    cache->is_changed = 1;
}

static void write_all(const lathe_probe_cache *cache)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_buffer text = LATHE_BUFFER_INIT;
    char *folder = NULL;
    const char *path = NULL;
    (void)cache_path(&arena, &path); /* without memory it is not written */
    lathe_buffer_printf(&text, "lathe plugins 1 %s\n", lathe_version());
    for (int64_t i = 0; i < cache->n; i++) {
        const lathe_probe_entry *e = &cache->entries[i];
        if (is_current(e))
            lathe_buffer_printf(&text,
                                "%s %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64
                                " %" PRId32 " %" PRId64 "\n",
                                e->hash, e->device, e->inode, e->bytes, e->mtime_ns, e->ctime_ns,
                                e->how, e->when);
    }
    if (path != NULL && text.status == LATHE_OK &&
        (folder = lathe_arena_strndup(&arena, path, strrchr(path, '/') - path)) != NULL &&
        lathe_dir_create(folder) == LATHE_OK)
        (void)lathe_file_write_atomic(path, text.data, text.len);
    lathe_buffer_fini(&text);
    lathe_arena_fini(&arena);
    lathe_error_clear();
}

void lathe_probe_cache_save(lathe_probe_cache *cache)
{
    if (cache->is_changed)
        write_all(cache);
    free(cache->entries);
    *cache = (lathe_probe_cache){0};
}

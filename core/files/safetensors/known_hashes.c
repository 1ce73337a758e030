/* Remembers the hashes of files. */
#include "files/safetensors/known_hashes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"

#define HEAD "lathe-hashes 1\n"

enum {
    KEPT_BYTES = 1 << 20, /* smaller files are hashed faster than they are looked up */
    MAX_KEPT = 4096,      /* lines of the file; the oldest are dropped */
    MAX_FILE = 1 << 20,   /* bytes of the file that are read */
    SETTLED_SECONDS = 2   /* the coarsest time stamps of file systems in use (FAT) */
};

typedef struct known {
    uint64_t device, inode;
    int64_t bytes, mtime, ctime; /* times in nanoseconds */
    char hex[65];
    int32_t is_new; /* 1: not in the file yet */
} known;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static known *table;
static int64_t n_table, capacity;
static int32_t is_read; /* 1: the file was read into the table */

static int64_t nanoseconds(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_nsec;
}

static known entry_of(const struct stat *st)
{
    return (known){.device = (uint64_t)st->st_dev,
                   .inode = (uint64_t)st->st_ino,
                   .bytes = (int64_t)st->st_size,
                   .mtime = nanoseconds(st->st_mtim),
                   .ctime = nanoseconds(st->st_ctim)};
}

static int is_same_file(const known *a, const known *b)
{
    return a->device == b->device && a->inode == b->inode;
}

static int is_unchanged(const known *a, const known *b)
{
    return is_same_file(a, b) && a->bytes == b->bytes && a->mtime == b->mtime &&
           a->ctime == b->ctime;
}

/* Adds an entry, or replaces that of an earlier content of the file. Without memory nothing is
 * remembered. */
static void put(const known *k)
{
    for (int64_t i = 0; i < n_table; i++)
        if (is_same_file(&table[i], k)) {
            table[i] = *k;
            return;
        }
    if (n_table == capacity) {
        const int64_t more = capacity > 0 ? 2 * capacity : 64;
        known *larger = realloc(table, (size_t)more * sizeof *larger);
        if (larger == NULL)
            return;
        table = larger;
        capacity = more;
    }
    table[n_table++] = *k;
}

/* ---- the file ---- */

/* The path of the file, in the arena; NULL: there is none. */
static const char *file_path(lathe_arena *arena)
{
    const char *named = getenv("LATHE_CACHE"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (named != NULL && named[0] != '\0')
        return strcmp(named, "off") == 0 ? NULL : lathe_path_join(arena, named, "hashes");
    if (xdg != NULL && xdg[0] == '/')
        return lathe_arena_printf(arena, "%s/lathe/hashes", xdg);
    return home != NULL && home[0] == '/'
               ? lathe_arena_printf(arena, "%s/.cache/lathe/hashes", home)
               : NULL;
}

/* Returns 1 if the text is complete and has the hash of its last line; sets *out_bytes to the
 * length before that line. */
static int is_sealed(const char *text, int64_t bytes, int64_t *out_bytes)
{
    char hex[65];
    const int64_t n = bytes - 65; /* the hash and its newline */
    *out_bytes = n;
    return n >= (int64_t)sizeof HEAD - 1 && memcmp(text, HEAD, sizeof HEAD - 1) == 0 &&
           text[n - 1] == '\n' && text[bytes - 1] == '\n' &&
           lathe_sha256_bytes(text, n, hex) == LATHE_OK && memcmp(text + n, hex, 64) == 0;
}

static void take_line(const char *line)
{
    known k = {.is_new = 0};
    unsigned long long device, inode;
    long long bytes, mtime, ctime;
    if (sscanf(line, "%llu %llu %lld %lld %lld %64[0-9a-f]", &device, &inode, &bytes, &mtime,
               &ctime, k.hex) != 6 ||
        strlen(k.hex) != 64)
        return;
    k.device = device;
    k.inode = inode;
    k.bytes = bytes;
    k.mtime = mtime;
    k.ctime = ctime;
    put(&k);
}

/* Reads the file into the table; entries that this process made win, since they are newer. */
static void read_file(const char *path)
{
    char *text = NULL;
    int64_t bytes = 0, n = 0, n_own = 0;
    if (path == NULL || !lathe_path_exists(path))
        return;
    if (lathe_file_read(path, MAX_FILE, &text, &bytes) != LATHE_OK) {
        lathe_error_clear();
        return;
    }
    known *own = n_table > 0 ? malloc((size_t)n_table * sizeof *own) : NULL;
    for (; own != NULL && n_own < n_table; n_own++)
        own[n_own] = table[n_own];
    if ((own != NULL || n_table == 0) && is_sealed(text, bytes, &n)) {
        text[n] = '\0';
        n_table = 0;
        for (char *line = text + sizeof HEAD - 1, *end; (end = strchr(line, '\n')) != NULL;
             line = end + 1) {
            *end = '\0';
            take_line(line);
        }
        for (int64_t i = 0; i < n_own; i++)
            put(&own[i]);
    }
    free(own);
    free(text);
}

static int is_kept(const known *k)
{
    return k->bytes >= KEPT_BYTES;
}

static lathe_status write_file(const char *path)
{
    lathe_buffer text = LATHE_BUFFER_INIT;
    char hex[65];
    int64_t n = 0;
    for (int64_t i = 0; i < n_table; i++)
        n += is_kept(&table[i]);
    lathe_buffer_puts(&text, HEAD);
    for (int64_t i = 0; i < n_table; i++) {
        const known *k = &table[i];
        if (is_kept(k) && n-- <= MAX_KEPT)
            lathe_buffer_printf(&text, "%llu %llu %lld %lld %lld %s\n",
                                (unsigned long long)k->device, (unsigned long long)k->inode,
                                (long long)k->bytes, (long long)k->mtime, (long long)k->ctime,
                                k->hex);
    }
    lathe_status status = text.status;
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_sha256_bytes(text.data, text.len, hex)) != LATHE_OK)
        goto out;
    lathe_buffer_printf(&text, "%s\n", hex);
    if ((status = text.status) != LATHE_OK)
        goto out;
    status = lathe_file_write_atomic(path, text.data, text.len);
out:
    lathe_buffer_fini(&text);
    return status;
}

/* ---- the calls ---- */

int32_t lathe__known_hash(const struct stat *of, char out_hex[65])
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const known want = entry_of(of);
    int32_t found = 0;
    (void)pthread_mutex_lock(&lock);
    if (!is_read && is_kept(&want)) {
        read_file(file_path(&arena));
        is_read = 1;
    }
    for (int64_t i = 0; i < n_table && !found; i++) {
        found = is_unchanged(&table[i], &want);
        if (found)
            memcpy(out_hex, table[i].hex, sizeof table[i].hex);
    }
    (void)pthread_mutex_unlock(&lock);
    lathe_arena_fini(&arena);
    return found;
}

void lathe__known_hash_add(const struct stat *before, const struct stat *after, const char hex[65])
{
    known k = entry_of(before);
    const known then = entry_of(after);
    struct timespec now;
    if (!is_unchanged(&k, &then) || clock_gettime(CLOCK_REALTIME, &now) != 0 ||
        nanoseconds(now) - k.ctime < (int64_t)SETTLED_SECONDS * 1000000000)
        return;
    (void)snprintf(k.hex, sizeof k.hex, "%.64s", hex);
    k.is_new = is_kept(&k);
    (void)pthread_mutex_lock(&lock);
    put(&k);
    (void)pthread_mutex_unlock(&lock);
}

void lathe__known_hashes_keep(void)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    int32_t any = 0;
    (void)pthread_mutex_lock(&lock);
    for (int64_t i = 0; i < n_table; i++) {
        any |= table[i].is_new;
        table[i].is_new = 0;
    }
    const char *path = any ? file_path(&arena) : NULL;
    if (path != NULL) {
        const char *dir = lathe_arena_strndup(&arena, path, (int64_t)(strrchr(path, '/') - path));
        read_file(path); /* what other processes added meanwhile */
        if (dir != NULL && lathe_dir_create(dir) == LATHE_OK)
            (void)!write_file(path);
        lathe_error_clear(); /* without the file, more is hashed */
    }
    (void)pthread_mutex_unlock(&lock);
    lathe_arena_fini(&arena);
}

void lathe__known_hashes_forget(void)
{
    (void)pthread_mutex_lock(&lock);
    free(table);
    table = NULL;
    n_table = capacity = 0;
    is_read = 0;
    (void)pthread_mutex_unlock(&lock);
}

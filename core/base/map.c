/* Maps files into memory. */
#include "base/map.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"

/* Most maps open at a time that have a guard; further maps have none. */
enum { MAX_MAPS = 16384, PATH_BYTES = 256 };

/* An open map. The SIGBUS handler reads begin and end, and writes broken. */
typedef struct guard {
    atomic_uintptr_t begin, end; /* 0: free */
    atomic_int broken;
    dev_t device;
    ino_t inode;
    char path[PATH_BYTES]; /* its end, when it is longer */
} guard;

static guard guards[MAX_MAPS];
static atomic_int n_used; /* only guards before this index may be in use */
static atomic_int any_broken;
static char
    broken_path[PATH_BYTES]; /* of the first; written with the mutex held, or by the handler */
static atomic_uintptr_t page_bytes;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void add_guard(const char *path, const lathe_map *map, const struct stat *info)
{
    const size_t n = strlen(path);
    (void)pthread_mutex_lock(&mutex);
    int i = 0;
    while (i < MAX_MAPS && atomic_load(&guards[i].begin) != 0)
        i++;
    if (i < MAX_MAPS) {
        guard *g = &guards[i];
        const char *tail = n < PATH_BYTES ? path : path + n - PATH_BYTES + 1;
        g->device = info->st_dev;
        g->inode = info->st_ino;
        memcpy(g->path, tail, strlen(tail) + 1);
        atomic_store(&g->broken, 0);
        atomic_store(&g->end, (uintptr_t)map->data + (uintptr_t)map->bytes);
        atomic_store(&g->begin, (uintptr_t)map->data);
        if (i >= atomic_load(&n_used))
            atomic_store(&n_used, i + 1);
    }
    (void)pthread_mutex_unlock(&mutex);
}

static guard *find_guard(uintptr_t address)
{
    const int n = atomic_load(&n_used);
    const uintptr_t page = atomic_load(&page_bytes);
    for (int i = 0; i < n; i++) {
        const uintptr_t begin = atomic_load(&guards[i].begin), end = atomic_load(&guards[i].end);
        if (begin != 0 && address >= begin && address < (end + page - 1) / page * page)
            return &guards[i];
    }
    return NULL;
}

lathe_status lathe_map_open(const char *path, lathe_map *out)
{
    int fd = -1;
    int64_t bytes = 0;
    struct stat info;
    lathe_status status = LATHE_OK;
    *out = (lathe_map){NULL, 0};
    LATHE_TRY(lathe_file_open(path, &fd, &bytes));
    atomic_store(&page_bytes, (uintptr_t)sysconf(_SC_PAGESIZE));
    if (fstat(fd, &info) != 0)
        status = lathe_error(LATHE_E_IO, "%s: cannot stat: %s", path, strerror(errno));
    if (status == LATHE_OK && bytes > 0) {
        void *data = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            status = lathe_error(LATHE_E_IO, "%s: cannot map: %s", path, strerror(errno));
        } else {
            *out = (lathe_map){data, bytes};
            add_guard(path, out, &info);
        }
    }
    (void)close(fd);
    return status;
}

void lathe_map_scattered(const lathe_map *map)
{
    if (map->data != NULL && map->bytes > 0)
        (void)madvise((void *)(uintptr_t)map->data, (size_t)map->bytes, MADV_RANDOM);
}

void lathe_map_close(lathe_map *map)
{
    if (map->data != NULL) {
        (void)pthread_mutex_lock(&mutex);
        guard *g = find_guard((uintptr_t)map->data);
        if (g != NULL)
            atomic_store(&g->begin, 0);
        (void)pthread_mutex_unlock(&mutex);
        (void)munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
    }
    map->data = NULL;
    map->bytes = 0;
}

/* Keeps the first broken file for messages. */
static void note_broken(guard *g)
{
    int was = 0;
    atomic_store(&g->broken, 1);
    if (atomic_compare_exchange_strong(&any_broken, &was, 1)) {
        memcpy(broken_path, g->path, sizeof broken_path);
        atomic_store(&any_broken, 2);
    }
}

int32_t lathe_map_fault(const void *address)
{
    const uintptr_t page = atomic_load(&page_bytes);
    guard *g = page != 0 ? find_guard((uintptr_t)address) : NULL;
    if (g == NULL)
        return 0;
    const uintptr_t from = (uintptr_t)address / page * page;
    const uintptr_t end = (atomic_load(&g->end) + page - 1) / page * page;
    note_broken(g);
    return mmap((void *)from, end - from, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0) != MAP_FAILED;
}

static lathe_status broken(const char *path)
{
    return lathe_error(
        LATHE_E_IO,
        "%s: the file became shorter, or a part of it could not be read, while it was "
        "in use; restore the file and start again",
        path);
}

lathe_status lathe_map_check(const lathe_map *map)
{
    struct stat info;
    guard *g = map->data != NULL ? find_guard((uintptr_t)map->data) : NULL;
    if (g == NULL)
        return lathe_maps_check();
    /* if a file shrinks within its last page, the rest of the page reads as zeros without a
     * signal */
    if (strlen(g->path) + 1 < PATH_BYTES && stat(g->path, &info) == 0 && info.st_dev == g->device &&
        info.st_ino == g->inode && info.st_size < map->bytes)
        note_broken(g);
    return atomic_load(&g->broken) ? broken(g->path) : LATHE_OK;
}

lathe_status lathe_maps_check(void)
{
    return atomic_load(&any_broken) == 2 ? broken(broken_path) : LATHE_OK;
}

void lathe_maps_forget(void)
{
    atomic_store(&any_broken, 0);
}

/* Opens a plugin's .so: checks the file before loading it, and the exported constant before
 * using it. */
#include "plug/so.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/trust.h"
#include "plug/code_range.h"
#include "plug/elf_file.h"
#include "plug/kind.h"
#include "plug/schema_check.h"
#include "plug/table_rules.h"

enum { MAX_FILE_BYTES = 1 << 30 };

static const char *at_work;

const char *lathe_so_at_work(void)
{
    return at_work;
}

void lathe_so_set_at_work(const char *path)
{
    at_work = path;
}

/* An open plugin file. Everything is read through fd, so that all checks see the same file. */
typedef struct file {
    const char *path;
    int fd;
    struct stat info;
    const uint8_t *data; /* the whole content, mapped; NULL: not read, or empty */
    lathe_elf_facts facts;
} file;

static lathe_status file_open(const char *path, file *f)
{
    *f = (file){.path = path, .fd = -1};
    /* opening a FIFO would wait for a writer */
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0 || fstat(f->fd, &f->info) != 0)
        return lathe_error(LATHE_E_PLUGIN, "%s: %s", path, strerror(errno));
    if (!S_ISREG(f->info.st_mode))
        return lathe_error(LATHE_E_PLUGIN, "%s: not a regular file", path);
    return lathe_trust_file(path, &f->info);
}

static void file_close(file *f)
{
    if (f->data != NULL)
        (void)munmap((void *)(uintptr_t)f->data, (size_t)f->info.st_size);
    if (f->fd >= 0)
        (void)close(f->fd);
}

/* Maps the file: the checks touch few pages, and a plugin that brings code for GPUs is large. Like
 * the dynamic loader's own mapping, it does not survive a file that is cut short meanwhile. */
static lathe_status file_map(file *f)
{
    const int64_t bytes = f->info.st_size;
    if (bytes > MAX_FILE_BYTES)
        return lathe_error(LATHE_E_PLUGIN, "%s: %lld bytes, expected at most %d", f->path,
                           (long long)bytes, MAX_FILE_BYTES);
    if (bytes == 0)
        return LATHE_OK;
    void *data = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, f->fd, 0);
    if (data == MAP_FAILED)
        return lathe_error(LATHE_E_PLUGIN, "%s: cannot read: %s", f->path, strerror(errno));
    f->data = data;
    return LATHE_OK;
}

static lathe_status check_pin(const file *f, const char *pin)
{
    char hex[65];
    LATHE_TRY(lathe_sha256_bytes(f->data, f->info.st_size, hex));
    if (strcasecmp(hex, pin) != 0)
        return lathe_error(LATHE_E_PLUGIN, "%s: SHA-256 is %s, pinned to %s", f->path, hex, pin);
    return LATHE_OK;
}

static int is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Writes a path for the open descriptor that the dynamic loader, and a debugger of this process,
 * can open. It contains the process id, because in a debugger "self" would mean the debugger's
 * own process. The dynamic loader treats two libraries opened by one path as the same library,
 * and descriptor numbers are reused, so each path is spelled differently: the bits of a counter
 * are written as "/" or "/.". Returns 0 if /proc does not show this process. */
static int descriptor_name(const file *f, char *out, size_t out_bytes)
{
    enum { BITS = 16 };
    static uint32_t n_names;
    struct stat info;
    int at = snprintf(out, out_bytes, "/proc/%d/fd", (int)getpid());
    for (int bit = 0; bit < BITS; bit++)
        at += snprintf(out + at, out_bytes - (size_t)at, "%s", n_names >> bit & 1 ? "/." : "/");
    (void)snprintf(out + at, out_bytes - (size_t)at, "/%d", f->fd);
    return n_names++ >> BITS == 0 && stat(out, &info) == 0 && is_same_file(&info, &f->info);
}

/* Libraries that this process has loaded, with what their headers said. A library that is requested
 * again is not read again, and not passed to the dynamic loader, which would keep each new path. */
typedef struct loaded {
    struct loaded *next;
    struct stat info;
    lathe_elf_facts facts;
    void *handle;
    char *old_name;      /* see restore_name */
    const uint8_t *data; /* the content that was checked; mapped as long as the library */
    const void *plugin;  /* its constant; NULL: not asked for yet */
    char hex[65];        /* SHA-256 of the content; "": not asked for yet */
} loaded;

static loaded *all_loaded;

/* Sets the path that dladdr(), debuggers and profilers show for the library to its own path. The
 * dynamic loader took the path it was opened by, which means nothing after the descriptor is
 * closed. The loader owns that string and would free it with the library, which is never unloaded.
 * The old string is kept so that leak checkers see it. */
static void restore_name(loaded *library, const char *path)
{
    struct link_map *map = NULL;
    if (dlinfo(library->handle, RTLD_DI_LINKMAP, &map) != 0 ||
        strncmp(map->l_name, "/proc/", 6) != 0)
        return;
    char *name = strdup(path);
    if (name == NULL)
        return;
    library->old_name = map->l_name;
    map->l_name = name;
}

/* Loads the file that was checked, by its descriptor, so that a file that replaced it meanwhile is
 * not loaded. A library with $ORIGIN in its run path needs its real folder to find its dependencies
 * and is loaded by path; the file at the path is then compared with the descriptor before and
 * after. */
static lathe_status load_new(const file *f, loaded *library)
{
    char name[128];
    struct stat now;
    const int by_path = f->facts.uses_origin || !descriptor_name(f, name, sizeof name);
    if (by_path && (stat(f->path, &now) != 0 || !is_same_file(&now, &f->info)))
        return lathe_error(LATHE_E_PLUGIN, "%s: the file changed while it was opened; try again",
                           f->path);
    lathe_so_set_at_work(f->path);
    library->handle = dlopen(by_path ? f->path : name, RTLD_NOW | RTLD_LOCAL);
    lathe_so_set_at_work(NULL);
    if (library->handle == NULL) {
        const char *why = dlerror();
        return lathe_error(LATHE_E_PLUGIN, "%s: cannot load it%s%s: %s", f->path,
                           by_path ? "" : ", opened as ", by_path ? "" : name,
                           why != NULL ? why : "?");
    }
    if (!by_path)
        restore_name(library, f->path);
    if ((by_path ? stat(f->path, &now) : fstat(f->fd, &now)) != 0 || !is_same_file(&now, &f->info))
        return lathe_error(LATHE_E_PLUGIN, "%s: the file changed while it was opened; try again",
                           f->path);
    return LATHE_OK;
}

/* The library of this very file, if the process has loaded it; else NULL. */
static loaded *find_loaded(const file *f)
{
    loaded *known = all_loaded;
    while (known != NULL && !is_same_file(&known->info, &f->info))
        known = known->next;
    return known;
}

static lathe_status load(file *f, loaded **out)
{
    loaded *library = calloc(1, sizeof *library);
    if (library == NULL)
        return lathe_error(LATHE_E_NOMEM, "out of memory: plugins");
    library->info = f->info;
    library->facts = f->facts;
    const lathe_status status = load_new(f, library);
    if (status != LATHE_OK) {
        free(library);
        return status;
    }
    library->data = f->data; /* see lathe_so_sha256 */
    f->data = NULL;
    library->next = all_loaded;
    all_loaded = library;
    *out = library;
    return LATHE_OK;
}

static lathe_status check_table(const lathe_plugin *plugin)
{
    /* The first two members of every kind's table. */
    struct head {
        uint32_t size, revision;
    };
    const struct head *head = plugin->table;
    if (head == NULL)
        return lathe_error(LATHE_E_PLUGIN, "has no table");
    if (head->revision != plugin->revision)
        return lathe_error(LATHE_E_PLUGIN,
                           "its table has revision %u, but the plugin declares revision %u",
                           head->revision, plugin->revision);
    if (head->size < lathe_kind_table_bytes(plugin->kind))
        return lathe_error(LATHE_E_PLUGIN, "its table has %u bytes, expected at least %u",
                           head->size, lathe_kind_table_bytes(plugin->kind));
    return LATHE_OK;
}

lathe_status lathe_plugin_check(const lathe_plugin *plugin, int32_t kind, const char *name)
{
    if (plugin->abi_major != LATHE_ABI_MAJOR)
        return lathe_error(LATHE_E_PLUGIN, "built for ABI major %u, this core has %d",
                           plugin->abi_major, LATHE_ABI_MAJOR);
    /* 104: its size in ABI 1.0; later versions are longer. */
    if (plugin->size < 104)
        return lathe_error(LATHE_E_PLUGIN, "its constant has %u bytes, expected at least 104",
                           plugin->size);
    if (kind <= 0 || kind >= LATHE_N_KINDS || plugin->kind != kind)
        return lathe_error(LATHE_E_PLUGIN, "is of kind %s (%d), found in the folder of %s",
                           lathe_kind_name(plugin->kind), plugin->kind, lathe_kind_name(kind));
    if (plugin->revision < 1 || plugin->revision > lathe_kind_revision(kind))
        return lathe_error(LATHE_E_PLUGIN, "%s interface revision %u, this core knows 1 to %u",
                           lathe_kind_name(kind), plugin->revision, lathe_kind_revision(kind));
    if (plugin->name == NULL || strcmp(plugin->name, name) != 0)
        return lathe_error(LATHE_E_PLUGIN, "calls itself '%s', its file is %s.so",
                           plugin->name != NULL ? plugin->name : "(null)", name);
    if (plugin->version == NULL || plugin->summary == NULL)
        return lathe_error(LATHE_E_PLUGIN, "has no version or no summary");
    if (plugin->family != NULL && !lathe_name_is_valid(plugin->family))
        return lathe_error(LATHE_E_PLUGIN, "its family '%.80s' is not [a-z][a-z0-9_]*",
                           plugin->family);
    LATHE_TRY(check_table(plugin));
    LATHE_TRY(lathe_table_rules_check(plugin));
    return lathe_schema_validate(plugin->fields, plugin->n_fields);
}

static lathe_status open_checked(file *f, int32_t kind, const char *name, const char *pin,
                                 const lathe_plugin **out)
{
    loaded *library = find_loaded(f);
    const int is_new = library == NULL;
    lathe_status status = LATHE_OK;
    if (library == NULL || pin != NULL)
        LATHE_TRY(file_map(f));
    if (pin != NULL)
        LATHE_TRY(check_pin(f, pin));
    if (library == NULL) {
        status = lathe_elf_check(f->data, f->info.st_size, &f->facts);
        if (status != LATHE_OK)
            return lathe_error_context(status, "%s", f->path);
        LATHE_TRY(load(f, &library));
    }
    const lathe_plugin *plugin = dlsym(library->handle, LATHE_PLUGIN_ENTRY_NAME);
    if (plugin == NULL)
        return lathe_error(LATHE_E_PLUGIN, "%s: exports no %s: not a Lathe plugin of ABI major %d",
                           f->path, LATHE_PLUGIN_ENTRY_NAME, LATHE_ABI_MAJOR);
    library->plugin = plugin;
    if (is_new)
        lathe_code_range_add(plugin, f->path);
    if (plugin->abi_major == LATHE_ABI_MAJOR && plugin->size > library->facts.entry_bytes)
        return lathe_error(LATHE_E_PLUGIN,
                           "%s: lathe_plugin.size is %u bytes, but the exported constant has %lld",
                           f->path, plugin->size, (long long)library->facts.entry_bytes);
    status = lathe_plugin_check(plugin, kind != 0 ? kind : plugin->kind, name);
    if (status != LATHE_OK)
        return lathe_error_context(status, "%s", f->path);
    *out = plugin;
    return LATHE_OK;
}

lathe_status lathe_so_sha256(const lathe_plugin *plugin, char out_hex[65])
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    lathe_status status = LATHE_OK;
    loaded *known = all_loaded;
    while (known != NULL && known->plugin != plugin)
        known = known->next;
    if (known == NULL)
        return lathe_error(LATHE_E_NOT_FOUND, "plugin %s was not loaded from a file", plugin->name);
    (void)pthread_mutex_lock(&one_at_a_time);
    if (known->hex[0] == '\0')
        status = lathe_sha256_bytes(known->data, known->info.st_size, known->hex);
    memcpy(out_hex, known->hex, sizeof known->hex);
    (void)pthread_mutex_unlock(&one_at_a_time);
    return status;
}

lathe_status lathe_so_open(const char *path, int32_t kind, const char *name, const char *pin,
                           const lathe_plugin **out)
{
    file f;
    *out = NULL;
    if (path[0] != '/')
        return lathe_error(LATHE_E_PLUGIN, "%s: not an absolute path", path);
    lathe_status status = file_open(path, &f);
    if (status == LATHE_OK)
        status = open_checked(&f, kind, name, pin, out);
    file_close(&f);
    return status;
}

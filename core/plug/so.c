/* One plugin's .so: opened only after its file is trusted, used only after its constant is checked. */
#include "plug/so.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "plug/kind.h"
#include "plug/schema.h"

/* A plugin is code that runs with all our rights: nobody else may be able to change it. A folder
 * that all may write is as good as the file, unless it is sticky. */
static lathe_status check_file(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return lathe_error(LATHE_E_PLUGIN, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return lathe_error(LATHE_E_PLUGIN, "%s: not a regular file", path);
    if (info.st_mode & (S_IWGRP | S_IWOTH))
        return lathe_error(LATHE_E_PLUGIN, "%s: %s may write it; run: chmod go-w %s", path,
                           info.st_mode & S_IWOTH ? "anyone" : "its group", path);
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = LATHE_OK;
    const char *slash = strrchr(path, '/');
    const char *folder = lathe_arena_strndup(&arena, path, slash != NULL ? slash - path : 0);
    if (folder != NULL && stat(folder, &info) == 0 && (info.st_mode & S_IWOTH) &&
        !(info.st_mode & S_ISVTX))
        status = lathe_error(LATHE_E_PLUGIN, "%s: anyone may write its folder; run: chmod o-w %s",
                             path, folder);
    lathe_arena_fini(&arena);
    return status;
}

static lathe_status check_pin(const char *path, const char *pin)
{
    char hex[65];
    LATHE_TRY(lathe_sha256_file(path, hex));
    if (strcasecmp(hex, pin) != 0)
        return lathe_error(LATHE_E_PLUGIN, "%s: SHA-256 is %s, pinned to %s", path, hex, pin);
    return LATHE_OK;
}

static lathe_status check_table(const lathe_plugin *plugin)
{
    /* Every kind's table begins with these two. */
    struct head {
        uint32_t size, revision;
    };
    const struct head *head = plugin->table;
    if (head == NULL)
        return lathe_error(LATHE_E_PLUGIN, "has no table");
    if (head->revision != plugin->revision)
        return lathe_error(LATHE_E_PLUGIN, "its table is of revision %u, the plugin says %u",
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
    /* 104: its size at ABI 1.0, which later, longer ones still reach. */
    if (plugin->size < 104)
        return lathe_error(LATHE_E_PLUGIN, "its constant has %u bytes, expected at least 104",
                           plugin->size);
    if (plugin->kind != kind)
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
    LATHE_TRY(check_table(plugin));
    return lathe_schema_validate(plugin->fields, plugin->n_fields);
}

lathe_status lathe_so_open(const char *path, int32_t kind, const char *name, const char *pin,
                           const lathe_plugin **out)
{
    *out = NULL;
    if (path[0] != '/')
        return lathe_error(LATHE_E_PLUGIN, "%s: not an absolute path", path);
    LATHE_TRY(check_file(path));
    if (pin != NULL)
        LATHE_TRY(check_pin(path, pin));
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *why = dlerror();
        return lathe_error(LATHE_E_PLUGIN, "%s: cannot load: %s", path, why != NULL ? why : "?");
    }
    const lathe_plugin *plugin = dlsym(handle, LATHE_PLUGIN_ENTRY_NAME);
    if (plugin == NULL)
        return lathe_error(LATHE_E_PLUGIN, "%s: exports no %s: not a Lathe plugin of ABI major %d",
                           path, LATHE_PLUGIN_ENTRY_NAME, LATHE_ABI_MAJOR);
    const lathe_status status = lathe_plugin_check(plugin, kind, name);
    if (status != LATHE_OK)
        return lathe_error_context(status, "%s", path);
    *out = plugin;
    return LATHE_OK;
}

/* The registry: where plugins are searched, which are open, which were refused and why.
 *
 * Folders are searched in this order, and the first match wins: those added here (the run file's),
 * LATHE_PLUGIN_PATH (colon list), the user's own (~/.local/lib/lathe/plugins), then the built-in
 * ones: lathe/plugins beside liblathe and <exe>/../lib/lathe/plugins. A plugin's file is
 * <kind>/<name>.so in a folder. The current folder is never searched: relative entries are refused.
 *
 * A plugin is code with all rights of the user. So folders that are not built in, their files and
 * all parent folders must belong to the user or root, and nobody else may write to them (trust.h).
 * A file of another folder cannot take the name of a built-in plugin, unless
 * lathe_registry_override or LATHE_PLUGIN_OVERRIDE ("kind/name", colon list) allows it. Files that
 * are not built in, and all files of a scan, are tried in a child process before they are loaded
 * (probe.h).
 *
 * Threads: one at a time. Plugins stay loaded until the process ends, also after the registry is
 * freed.
 */
#ifndef LATHE_PLUG_REGISTRY_H
#define LATHE_PLUG_REGISTRY_H

#include "base/arena.h"
#include "plug/plugin_instance.h"

typedef struct lathe_registry lathe_registry;

/** A file or folder that is not used. */
typedef struct lathe_refusal {
    int32_t kind;    /* 0: a folder */
    int32_t is_note; /* 1: not an error, e.g. hidden by another of the same name */
    /* 1: refused because it has the name of a built-in plugin, which is used instead */
    int32_t hides;
    const char *path;
    const char *reason; /* one line that begins with the path */
} lathe_refusal;

lathe_status lathe_registry_create(lathe_registry **out);
void lathe_registry_destroy(lathe_registry *registry);

/** Adds a folder, after those added before and before all others. Call it before anything is
 *  loaded. */
lathe_status lathe_registry_add_path(lathe_registry *registry, const char *folder);

/** Requires SHA-256 `hex` of the plugin "optimizer/adamw". Call it before the plugin is loaded.
 *  LATHE_E_ARG. */
lathe_status lathe_registry_pin(lathe_registry *registry, const char *kind_and_name,
                                const char *hex);

/** Allows a plugin of another folder to take the name of the built-in "optimizer/adamw". Call it
 *  before the plugin is loaded. LATHE_E_ARG. */
lathe_status lathe_registry_override(lathe_registry *registry, const char *kind_and_name);

/** Opens <kind>/<name>.so and no other file. LATHE_E_NOT_FOUND names the folders searched, the
 *  plugins found, and a similar name; LATHE_E_PLUGIN: the plugin was refused. */
lathe_status lathe_registry_find(lathe_registry *registry, int32_t kind, const char *name,
                                 const lathe_component **out);

/** Opens all plugins of a kind (0: of every kind) that survive a trial in a child process. Refusals
 *  are recorded and are not errors. */
lathe_status lathe_registry_scan(lathe_registry *registry, int32_t kind);

/** Open plugins of a kind (0: all) by kind, then name; in arena. */
lathe_status lathe_registry_list(const lathe_registry *registry, int32_t kind, lathe_arena *arena,
                                 const lathe_component ***out, int64_t *out_n);

/** Names of a kind's files, sorted, without opening any; in arena. */
lathe_status lathe_registry_names(const lathe_registry *registry, int32_t kind, lathe_arena *arena,
                                  const char ***out, int64_t *out_n);

/** The plugins that `name` can mean: the plugin of that name; or all of that family; or, for
 *  "auto", all of the kind. Sorted by name. A refused candidate gives a warning in the log. If
 *  there is none, errors as lathe_registry_find. */
lathe_status lathe_registry_candidates(lathe_registry *registry, int32_t kind, const char *name,
                                       lathe_arena *arena, const lathe_component ***out,
                                       int64_t *out_n);

/** The plugins that were refused so far. Borrowed until the next call that loads. */
const lathe_refusal *lathe_registry_refusals(const lathe_registry *registry, int64_t *out_n);

/** The folders that are searched, in order, without those that do not exist. */
const char *const *lathe_registry_paths(const lathe_registry *registry, int64_t *out_n);

#endif

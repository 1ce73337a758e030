/* The private state of the registry, for registry.c, registry_scan.c and search_path.c only. */
#ifndef LATHE_PLUG_REGISTRY_STATE_H
#define LATHE_PLUG_REGISTRY_STATE_H

#include "graph/ir/op_source.h"
#include "plug/registry.h"

enum { LATHE__MAX_PATHS = 64 };

struct lathe__pin {
    struct lathe__pin *next;
    int32_t kind;
    const char *name, *hex;
};

/* A built-in plugin that another plugin of the same name may hide: plugins.override. */
struct lathe__override {
    struct lathe__override *next;
    int32_t kind;
    const char *name;
};

struct lathe_registry {
    lathe_arena arena; /* all texts and components */
    const char *paths[LATHE__MAX_PATHS];
    uint8_t is_builtin[LATHE__MAX_PATHS]; /* 1: the folder is part of Lathe */
    int64_t n_paths, n_added; /* the first n_added came through lathe_registry_add_path */
    struct lathe__pin *pins;
    struct lathe__override *overrides;
    lathe_component **items;
    int64_t n_items;
    lathe_refusal *refusals;
    int64_t n_refusals;
    lathe_op_source ops; /* op_library.h */
};

/** Fills the folders that every registry has. */
lathe_status lathe__search_path_init(lathe_registry *registry);

/** Whether the file <kind>/<name>.so of folder `i` may be opened: nobody else can change it
 *  (trust.h), and it does not hide a built-in plugin without an override. Built-in folders are not
 *  checked. LATHE_E_PLUGIN with a message that begins with the path; *out_hides is 1 if it would
 *  hide a built-in plugin. */
lathe_status lathe__registry_may_open(const lathe_registry *registry, int64_t i, int32_t kind,
                                      const char *name, const char *path, int *out_hides);

/** The SHA-256 that a plugin is pinned to, or NULL. */
const char *lathe__registry_pin_of(const lathe_registry *registry, int32_t kind, const char *name);

/** The plugin if it is already open, or NULL. */
const lathe_component *lathe__registry_opened(const lathe_registry *registry, int32_t kind,
                                              const char *name);

/** Opens one file, or records the refusal and returns it. */
lathe_status lathe__registry_open(lathe_registry *registry, int32_t kind, const char *name,
                                  const char *path, const lathe_component **out);

/** Records the thread's error as the refusal of a file, and returns `status` with the same
 *  message. */
lathe_status lathe__registry_refuse_error(lathe_registry *registry, int32_t kind, const char *path,
                                          lathe_status status);

/** Returns LATHE_E_NOT_FOUND with the existing names and the folders searched. */
lathe_status lathe__registry_not_found(const lathe_registry *registry, int32_t kind,
                                       const char *name);

/** Records a refusal, once per path. */
lathe_status lathe__registry_refuse(lathe_registry *registry, int32_t kind, int32_t is_note,
                                    const char *path, const char *reason);

#endif

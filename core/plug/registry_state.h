/* The registry's own state, shared by registry.c and search_path.c only. */
#ifndef LATHE_PLUG_REGISTRY_STATE_H
#define LATHE_PLUG_REGISTRY_STATE_H

#include "plug/registry.h"

enum { LATHE__MAX_PATHS = 64 };

struct lathe__pin {
    struct lathe__pin *next;
    int32_t kind;
    const char *name, *hex;
};

struct lathe_registry {
    lathe_arena arena; /* all texts and components */
    const char *paths[LATHE__MAX_PATHS];
    int64_t n_paths, n_added; /* the first n_added came through lathe_registry_add_path */
    struct lathe__pin *pins;
    lathe_component **items;
    int64_t n_items;
    lathe_refusal *refusals;
    int64_t n_refusals;
};

/** Fills the folders that every registry has. */
lathe_status lathe__search_path_init(lathe_registry *registry);

/** Records a refusal once per path. */
lathe_status lathe__registry_refuse(lathe_registry *registry, int32_t kind, int32_t is_note,
                                    const char *path, const char *reason);

#endif

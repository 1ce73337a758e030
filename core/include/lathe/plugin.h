/* The entry of a plugin. A plugin exports exactly one constant, LATHE_PLUGIN_ENTRY, which can be
 * read before any plugin code runs. The loader checks abi_major and size first, then kind, revision
 * and schema.
 *
 *     LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
 *     const lathe_plugin LATHE_PLUGIN_ENTRY = {
 *         LATHE_PLUGIN_HEADER, .kind = LATHE_KIND_OPTIMIZER, ...};
 *
 * A .so is never unloaded. Its tables and strings are constant for the life of the process.
 */
#ifndef LATHE_PLUGIN_H
#define LATHE_PLUGIN_H

#include "host.h"
#include "schema.h"

/* Stored in manifests: append only. */
enum {
    LATHE_KIND_OPTIMIZER = 1,
    LATHE_KIND_SCHEDULER = 2,
    LATHE_KIND_QUANT = 3,
    LATHE_KIND_ADAPTER = 4,
    LATHE_KIND_STAGE = 5,
    LATHE_KIND_ATTENTION = 6,
    LATHE_KIND_DEVICE = 7,
    LATHE_KIND_MODEL = 8,
    LATHE_KIND_REWARD = 9,
    LATHE_KIND_RENDERER = 10,
    LATHE_KIND_READER = 11,
    LATHE_KIND_COLLECTIVE = 12,
    LATHE_KIND_OP = 13,
    LATHE_N_KINDS = 14
};

/* Bands of score(): the highest score is chosen, 0 refuses, ties are resolved by name. */
enum {
    LATHE_SCORE_NO = 0,
    LATHE_SCORE_PORTABLE = 100,
    LATHE_SCORE_VENDOR = 300,
    LATHE_SCORE_FAMILY = 500,
    LATHE_SCORE_EXACT = 700
};

typedef struct lathe_plugin {
    uint32_t size;       /* sizeof(lathe_plugin) of the header it was built with */
    uint32_t abi_major;  /* LATHE_ABI_MAJOR */
    uint32_t abi_minor;  /* LATHE_ABI_MINOR */
    int32_t kind;        /* LATHE_KIND_* */
    uint32_t revision;   /* of the kind's interface, LATHE_<KIND>_REVISION */
    int32_t n_fields;    /* length of fields */
    const char *name;    /* [a-z][a-z0-9_]*, the name in the TOML file */
    const char *family;  /* plugins of one family can replace each other, e.g. "cpu"; or NULL */
    const char *version; /* of the plugin, semantic */
    const char *summary; /* one line */
    const char *source;  /* paper, equation or project it follows; "ours" */
    const char *license; /* SPDX id */
    const lathe_field *fields; /* the schema: keys of its TOML table except `name` */
    const void *table;         /* the kind's interface, e.g. const lathe_optimizer_v1 * */

    /** [open] Makes an instance from checked values: n_fields of them in schema order, borrowed
     *  for the instance's lifetime. Checks rules across fields. *out_self may stay NULL if there
     *  is no state. Errors: any code, recorded with host->fail, or with host->fail_at if a key is
     *  wrong; the core puts the kind and the name of the plugin before the message. A create that
     *  fails must free everything. NULL: the plugin has no state. */
    lathe_status (*create)(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self);
    /** [open] Frees an instance; takes NULL. NULL: nothing to free. */
    void (*destroy)(void *self);
} lathe_plugin;
LATHE_ABI_SIZE(lathe_plugin, 104);

#define LATHE_PLUGIN_ENTRY lathe_plugin_v1
#define LATHE_PLUGIN_ENTRY_NAME "lathe_plugin_v1"
#define LATHE_PLUGIN_HEADER                                                                        \
    .size = (uint32_t)sizeof(lathe_plugin), .abi_major = LATHE_ABI_MAJOR,                          \
    .abi_minor = LATHE_ABI_MINOR

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;

#endif

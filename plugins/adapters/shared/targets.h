/* The modules that an adapter wraps: PEFT's target_modules. */
#ifndef LATHE_ADAPTERS_TARGETS_H
#define LATHE_ADAPTERS_TARGETS_H

#include "lathe/adapter.h"
#include "lathe/schema.h"

#define TARGETS_MOST_NAMES 64

/* The values of TARGETS_FIELDS, from the first one on. */
enum { TARGETS_MODULES, TARGETS_PATTERN, TARGETS_EXCLUDE, TARGETS_N_FIELDS };

#define TARGETS_FIELDS                                                                             \
    {"target_modules",                                                                             \
     LATHE_T_STRING_LIST,                                                                          \
     0,                                                                                            \
     "[\"all-linear\"]",                                                                           \
     LATHE_NO_RANGE,                                                                               \
     NULL,                                                                                         \
     NULL,                                                                                         \
     "ends of the names of the modules to adapt, or [\"all-linear\"]: all but the head"},          \
        LATHE_FIELD_STRING("target_pattern", NULL, NULL,                                           \
                           "instead of target_modules: a regular expression for whole names"),     \
    {                                                                                              \
        "exclude_modules", LATHE_T_STRING_LIST, 0, "[]", LATHE_NO_RANGE, NULL, NULL,               \
            "ends of the names of modules that are not adapted"                                    \
    }

typedef struct targets {
    const lathe_host *host;
    const char *method;       /* name of the plugin, for messages */
    int all_linear;           /* the list is ["all-linear"] */
    const char *const *names; /* ends of names, borrowed */
    int64_t n;
    const char *pattern; /* instead of the names, or NULL; borrowed */
    void *compiled;
    const char *const *excluded; /* ends of names, borrowed */
    int64_t n_excluded;
    /* last parts of the module names adapted under all-linear, for adapter_config.json */
    char seen[TARGETS_MOST_NAMES][64];
    int n_seen;
    int saw_conv1d; /* some adapted weight is [in, out] on file */
} targets;

/** Reads the values of TARGETS_FIELDS. LATHE_E_CONFIG: they are empty or contradict themselves, or
 *  the pattern is no regular expression. targets_fini is due in every case. */
lathe_status targets_read(targets *t, const lathe_host *host, const char *method,
                          const lathe_value values[TARGETS_N_FIELDS]);
void targets_fini(targets *t);
/** Whether the site is one of them. */
int32_t targets_include(const targets *t, const lathe_site *site);
/** Remembers the last part of an adapted module's name. LATHE_E_UNSUPPORTED: too many kinds. */
lathe_status targets_remember(targets *t, const lathe_site *site);
/** LATHE_E_CONFIG: an entry matches none of the modules, so it is probably misspelt, or all of them
 *  are excluded. */
lathe_status targets_check(const targets *t, const char *const *modules, int32_t n_modules);

/** The parameter of a site whose name is `end` or ends in ".end"; NULL: there is none. */
const lathe_site_param *targets_find_param(const lathe_site_param *params, int32_t n_params,
                                           const char *end);

/* ---- functions of lathe_adapter_v1 for adapters whose own parameters alone are trained ---- */

lathe_status adapter_select_own(void *self, const lathe_param_info *param, int32_t *out_trainable,
                                int32_t *out_group);
int32_t adapter_base_is_frozen(void *self);
/** PEFT's key: "base_model.model." and the name. */
int64_t adapter_file_key(void *self, const char *param_name, char *out, int64_t capacity);

#endif

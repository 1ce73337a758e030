/* The modules that an adapter wraps: PEFT's target_modules. */
#ifndef LATHE_ADAPTERS_TARGETS_H
#define LATHE_ADAPTERS_TARGETS_H

#include "lathe/adapter.h"
#include "lathe/schema.h"
#include "shared/saved_modules.h"

#define TARGETS_MAX_NAMES 64

/* The values of TARGETS_FIELDS, from the first one on. */
enum {
    TARGETS_MODULES,
    TARGETS_PATTERN,
    TARGETS_EXCLUDE,
    TARGETS_SAVED,
    TARGETS_BIAS,
    TARGETS_EXCLUDE_PATTERN,
    TARGETS_LAYERS,
    TARGETS_LAYERS_PATTERN,
    TARGETS_STRICT,
    TARGETS_N_FIELDS
};

/* only: the choice of `bias` for the biases of adapted modules, "lora_only". */
#define TARGETS_FIELDS(only)                                                                       \
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
        {"exclude_modules",                                                                        \
         LATHE_T_STRING_LIST,                                                                      \
         0,                                                                                        \
         "[]",                                                                                     \
         LATHE_NO_RANGE,                                                                           \
         NULL,                                                                                     \
         NULL,                                                                                     \
         "ends of the names of modules that are not adapted"},                                     \
        {"modules_to_save",                                                                        \
         LATHE_T_STRING_LIST,                                                                      \
         0,                                                                                        \
         "[]",                                                                                     \
         LATHE_NO_RANGE,                                                                           \
         NULL,                                                                                     \
         NULL,                                                                                     \
         "ends of the names of modules that are trained whole and saved beside the adapter: "      \
         "[\"embed_tokens\", \"lm_head\"]"},                                                       \
        LATHE_FIELD_STRING("bias", "\"none\"", "none|all|" only,                                   \
                           "biases that are trained: all of the model's, or those of the adapted " \
                           "modules"),                                                             \
        LATHE_FIELD_STRING("exclude_pattern", NULL, NULL,                                          \
                           "instead of exclude_modules: a regular expression for whole names"),    \
        {"layers_to_transform",                                                                    \
         LATHE_T_FLOAT_LIST,                                                                       \
         0,                                                                                        \
         "[]",                                                                                     \
         0.0,                                                                                      \
         1e6,                                                                                      \
         NULL,                                                                                     \
         NULL,                                                                                     \
         "numbers of the layers whose modules are adapted; empty: all"},                           \
        {"layers_pattern",                                                                         \
         LATHE_T_STRING_LIST,                                                                      \
         0,                                                                                        \
         "[]",                                                                                     \
         LATHE_NO_RANGE,                                                                           \
         NULL,                                                                                     \
         NULL,                                                                                     \
         "regular expressions for what stands before a layer's number in the names of modules "    \
         "(\"layers\"); empty: the first number counts"},                                          \
        LATHE_FIELD_BOOL("strict", "true",                                                         \
                         "entries that match nothing and an alpha of 0 are errors; false: "        \
                         "warnings, as for folders of PEFT")

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
    const char *exclude_pattern; /* instead of the names, or NULL; borrowed */
    void *exclude_compiled;
    const double *layers;              /* numbers of layers, borrowed */
    int64_t n_layers;                  /* 0: all */
    const char *const *layer_patterns; /* borrowed */
    void **layer_compiled;
    int64_t n_layer_patterns;
    int strict; /* 0: entries that match nothing are warned of */
    /* last parts of the module names adapted under all-linear, for adapter_config.json */
    char seen[TARGETS_MAX_NAMES][64];
    int n_seen;
    saved_modules saved; /* parameters of the model that are trained beside the adapter */
    int saw_conv1d;      /* some adapted weight is [in, out] on file */
    int takes_outer;     /* the method adapts the embedding and the head, too */
} targets;

/** Reads the values of TARGETS_FIELDS; ties: of ensure_weight_tying, NULL: the method has no such
 *  key. LATHE_E_CONFIG: they are empty or contradict themselves, or
 *  the pattern is no regular expression. targets_fini is due in every case. */
lathe_status targets_read(targets *t, const lathe_host *host, const char *method,
                          const lathe_value values[TARGETS_N_FIELDS], const lathe_value *ties);
void targets_fini(targets *t);
/** Whether the site is one of them. */
int32_t targets_include(const targets *t, const lathe_site *site);
/** Remembers the last part of an adapted module's name. LATHE_E_UNSUPPORTED: too many kinds. */
lathe_status targets_remember(targets *t, const lathe_site *site);
/** Number of the modules after the linear sites, the embedding and the head, among which targets
 * may be; 0 for a method or for "all-linear", which does not take them. */
int32_t targets_n_outer(const targets *t, const char *const *modules, int32_t n_modules);
/** LATHE_E_NOT_FOUND: an entry matches none of the modules, so it is probably misspelt, or all of
 * them are excluded, or a parameter of the model that is to be trained does not exist. */
lathe_status targets_check(const targets *t, const char *const *modules, int32_t n_modules,
                           const char *const *params, int32_t n_params);
/** lathe_adapter_v1.select: the adapter's own parameters, and those of modules_to_save and bias. */
lathe_status targets_select(const targets *t, const lathe_param_info *param,
                            int32_t *out_trainable);
/** lathe_adapter_v1.file_key: "base_model.model." and the name; PEFT has the bias of an adapted
 * module under "base_layer". */
int64_t targets_file_key(const targets *t, const char *param_name, char *out, int64_t capacity);

/** The parameter of a site whose name is `end` or ends in ".end"; NULL: there is none. */
const lathe_site_param *targets_find_param(const lathe_site_param *params, int32_t n_params,
                                           const char *end);

/** lathe_adapter_v1.base_is_frozen of all that use this file: 1. */
int32_t adapter_base_is_frozen(void *self);

#endif

/* The modules that an adapter wraps. */
#include "shared/targets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Compiles an expression that must match a whole name. */
static lathe_status compile_whole(const targets *t, const char *key, const char *pattern,
                                  void **out)
{
    char text[1024];
    const int n = snprintf(text, sizeof text, "^(?:%s)$", pattern);
    if (pattern[0] == '\0' || n < 0 || (size_t)n >= sizeof text)
        return lathe_fail_at(t->host, LATHE_E_CONFIG, key, "%s has %d characters; expected 1 to %d",
                             key, n - 6, (int)sizeof text - 7);
    if (t->host->pattern_create(key, text, out) != LATHE_OK)
        return lathe_fail_at(t->host, LATHE_E_CONFIG, key, "%s \"%s\" is no regular expression",
                             key, pattern);
    return LATHE_OK;
}

static lathe_status read_patterns(targets *t)
{
    if (t->pattern && !t->all_linear)
        return lathe_fail_at(t->host, LATHE_E_CONFIG, "target_pattern",
                             "target_pattern and target_modules both choose modules; set one");
    if (t->exclude_pattern && t->n_excluded > 0)
        return lathe_fail_at(t->host, LATHE_E_CONFIG, "exclude_pattern",
                             "exclude_pattern and exclude_modules both exclude modules; set one");
    if (t->pattern) {
        t->all_linear = 0;
        LATHE_TRY(compile_whole(t, "target_pattern", t->pattern, &t->compiled));
    }
    return t->exclude_pattern
               ? compile_whole(t, "exclude_pattern", t->exclude_pattern, &t->exclude_compiled)
               : LATHE_OK;
}

/* Reads layers_to_transform and layers_pattern. As in PEFT, they belong to a list of names. */
static lathe_status read_layers(targets *t, const lathe_value *layers, const lathe_value *patterns)
{
    char text[1024];
    t->layers = layers->nums;
    t->n_layers = layers->is_set ? layers->n : 0;
    t->layer_patterns = patterns->strs;
    const int64_t n_patterns = patterns->is_set ? patterns->n : 0;
    for (int64_t i = 0; i < t->n_layers; i++)
        if (t->layers[i] > floor(t->layers[i]))
            return lathe_fail_at(t->host, LATHE_E_CONFIG, "layers_to_transform",
                                 "layers_to_transform[%lld] is %g; expected the number of a layer",
                                 (long long)i, t->layers[i]);
    if (t->n_layers > 0 && t->pattern)
        return lathe_fail_at(t->host, LATHE_E_CONFIG, "layers_to_transform",
                             "layers_to_transform belongs to target_modules, and target_pattern "
                             "chooses the modules: name the layers in the pattern");
    if (n_patterns > 0 && t->n_layers == 0)
        return lathe_fail_at(t->host, LATHE_E_CONFIG, "layers_pattern",
                             "layers_pattern has no effect without layers_to_transform");
    t->layer_compiled =
        n_patterns > 0 ? t->host->alloc(n_patterns * (int64_t)sizeof(void *)) : NULL;
    if (n_patterns > 0 && t->layer_compiled == NULL)
        return lathe_fail(t->host, LATHE_E_NOMEM, "no memory for layers_pattern");
    for (int64_t i = 0; i < n_patterns; i++) {
        const int n =
            snprintf(text, sizeof text, "^(?:^|.*?\\.)%s\\.([0-9]+)\\.", t->layer_patterns[i]);
        if (n < 0 || (size_t)n >= sizeof text ||
            t->host->pattern_create("layers_pattern", text, &t->layer_compiled[i]) != LATHE_OK)
            return lathe_fail_at(t->host, LATHE_E_CONFIG, "layers_pattern",
                                 "layers_pattern[%lld] = \"%s\" is no regular expression",
                                 (long long)i, t->layer_patterns[i]);
        t->n_layer_patterns++;
    }
    return LATHE_OK;
}

static lathe_status check_names(const targets *t, const char *key, const char *const *names,
                                int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (names[i][0] == '\0')
            return lathe_fail_at(t->host, LATHE_E_CONFIG, key, "%s[%lld] is empty", key,
                                 (long long)i);
    return LATHE_OK;
}

lathe_status targets_read(targets *t, const lathe_host *host, const char *method,
                          const lathe_value values[TARGETS_N_FIELDS], const lathe_value *ties)
{
    const lathe_value *list = &values[TARGETS_MODULES], *excluded = &values[TARGETS_EXCLUDE];
    const lathe_value *exclude = &values[TARGETS_EXCLUDE_PATTERN];
    t->host = host;
    t->method = method;
    t->strict = values[TARGETS_STRICT].i != 0;
    t->names = list->strs;
    t->n = list->n;
    t->pattern = values[TARGETS_PATTERN].is_set ? values[TARGETS_PATTERN].s : NULL;
    t->excluded = excluded->strs;
    t->n_excluded = excluded->is_set ? excluded->n : 0;
    t->exclude_pattern = exclude->is_set ? exclude->s : NULL;
    if (list->n == 0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "target_modules",
                             "target_modules is empty: nothing would train");
    LATHE_TRY(check_names(t, "target_modules", t->names, t->n));
    LATHE_TRY(check_names(t, "exclude_modules", t->excluded, t->n_excluded));
    for (int64_t i = 0; i < list->n; i++)
        t->all_linear |= strcmp(list->strs[i], "all-linear") == 0;
    if (t->all_linear && list->n > 1)
        return lathe_fail_at(host, LATHE_E_CONFIG, "target_modules",
                             "target_modules has \"all-linear\" and %lld more; \"all-linear\" "
                             "must be the only entry",
                             (long long)(list->n - 1));
    LATHE_TRY(saved_modules_read(&t->saved, host, method, &values[TARGETS_SAVED],
                                 &values[TARGETS_BIAS], ties));
    t->saved.strict = t->strict;
    LATHE_TRY(read_patterns(t));
    return read_layers(t, &values[TARGETS_LAYERS], &values[TARGETS_LAYERS_PATTERN]);
}

void targets_fini(targets *t)
{
    if (t->host == NULL)
        return; /* targets_read was not called */
    for (int64_t i = 0; i < t->n_layer_patterns; i++)
        t->host->pattern_free(t->layer_compiled[i]);
    t->host->free(t->layer_compiled);
    t->host->pattern_free(t->compiled);
    t->host->pattern_free(t->exclude_compiled);
    t->compiled = t->exclude_compiled = NULL;
    t->layer_compiled = NULL;
    t->n_layer_patterns = 0;
}

/* Whether `name` is `suffix` or ends in ".suffix". */
static int ends_in(const char *name, const char *suffix)
{
    const size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0 && (n == m || name[n - m - 1] == '.');
}

static int ends_in_one(const char *name, const char *const *ends, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (ends_in(name, ends[i]))
            return 1;
    return 0;
}

static int matches(const targets *t, const void *compiled, const char *module)
{
    int64_t span[2];
    return t->host->pattern_find(compiled, module, (int64_t)strlen(module), 0, span, 2) > 0;
}

/* The number of the layer of a module, where PEFT finds it without layers_pattern: the first part
 * that is a number, with two parts before it and one after it. NULL: there is none. */
static const char *first_number(const char *module)
{
    int part = 0;
    const char *dot;
    for (const char *at = module; at != NULL; at = dot != NULL ? dot + 1 : NULL, part++) {
        const size_t n = strspn(at, "0123456789");
        if (part >= 2 && n > 0 && at[n] == '.')
            return at;
        dot = strchr(at, '.');
    }
    return NULL;
}

/* The last group of the pattern is the number. */
static const char *number_of(const targets *t, const char *module)
{
    enum { MAX_GROUPS = 32 };
    int64_t spans[2 * MAX_GROUPS];
    if (t->n_layer_patterns == 0)
        return first_number(module);
    for (int64_t i = 0; i < t->n_layer_patterns; i++) {
        const int32_t n = t->host->pattern_find(t->layer_compiled[i], module,
                                                (int64_t)strlen(module), 0, spans, 2 * MAX_GROUPS);
        if (n > 0 && n <= MAX_GROUPS)
            return spans[2 * n - 2] >= 0 ? module + spans[2 * n - 2] : NULL;
    }
    return NULL;
}

/* Whether layers_to_transform has the module's layer. */
static int is_in_layers(const targets *t, const char *module)
{
    const char *number = t->n_layers > 0 ? number_of(t, module) : NULL;
    for (int64_t i = 0; number && i < t->n_layers; i++)
        if (strtoll(number, NULL, 10) == (long long)t->layers[i])
            return 1;
    return t->n_layers == 0;
}

/* Whether target_modules has the whole name, for which PEFT does not look at the layers. */
static int is_named(const targets *t, const char *module)
{
    for (int64_t i = 0; i < t->n; i++)
        if (strcmp(t->names[i], module) == 0)
            return 1;
    return 0;
}

/* Whether a module of that name is one of them, where all linear ones but the head may be. */
static int includes(const targets *t, const char *module)
{
    if (ends_in_one(module, t->excluded, t->n_excluded) ||
        (t->exclude_compiled && matches(t, t->exclude_compiled, module)) ||
        saved_modules_exclude(&t->saved, module))
        return 0;
    if (t->compiled)
        return matches(t, t->compiled, module);
    if (t->all_linear)
        return is_in_layers(t, module);
    return is_named(t, module) || (ends_in_one(module, t->names, t->n) && is_in_layers(t, module));
}

int32_t targets_include(const targets *t, const lathe_site *site)
{
    /* the head is outside the layers; PEFT's all-linear takes no experts, which are no Linear */
    if (t->all_linear && (site->layer < 0 || site->n_experts > 0))
        return 0;
    return includes(t, site->module);
}

lathe_status targets_remember(targets *t, const lathe_site *site)
{
    const char *dot = strrchr(site->module, '.');
    const char *name = dot ? dot + 1 : site->module;
    t->saw_conv1d |= site->transposed_on_file;
    for (int i = 0; i < t->n_seen; i++)
        if (strcmp(t->seen[i], name) == 0)
            return LATHE_OK;
    if (t->n_seen == TARGETS_MAX_NAMES || strlen(name) >= sizeof t->seen[0])
        return lathe_fail(t->host, LATHE_E_UNSUPPORTED,
                          "%s: all-linear meets more than %d kinds of module at %s", t->method,
                          TARGETS_MAX_NAMES, site->module);
    memcpy(t->seen[t->n_seen++], name, strlen(name) + 1);
    return LATHE_OK;
}

/* Says that an entry has no effect: an error, or a warning for folders of PEFT, which takes them.
 */
static lathe_status idle(const targets *t, const char *key, const char *entry)
{
    if (t->strict)
        return lathe_fail_at(t->host, LATHE_E_NOT_FOUND, key, "%s: %s matches no module", t->method,
                             entry);
    lathe_warn(t->host, "%s: %s matches no module", t->method, entry);
    return LATHE_OK;
}

/* Finds ends that no module has. */
static lathe_status check_ends(const targets *t, const char *key, const char *const *ends,
                               int64_t n, const char *const *modules, int32_t n_modules)
{
    char entry[256], element[64];
    for (int64_t i = 0; i < n; i++) {
        int32_t m = 0;
        while (m < n_modules && !ends_in(modules[m], ends[i]))
            m++;
        (void)snprintf(entry, sizeof entry, "%s[%lld] = \"%.100s\"", key, (long long)i, ends[i]);
        (void)snprintf(element, sizeof element, "%s.%lld", key, (long long)i);
        if (m == n_modules)
            LATHE_TRY(idle(t, element, entry));
    }
    return LATHE_OK;
}

/* Checks a pattern of whole names. A search that takes too long would look like a name that does
 * not match. *out_hits: number of modules that match. */
static lathe_status try_pattern(const targets *t, const void *compiled, const char *const *modules,
                                int32_t n_modules, int32_t *out_hits)
{
    int64_t span[2];
    *out_hits = 0;
    for (int32_t m = 0; compiled && m < n_modules; m++) {
        const int32_t found =
            t->host->pattern_find(compiled, modules[m], (int64_t)strlen(modules[m]), 0, span, 2);
        if (found < 0)
            return found;
        *out_hits += found > 0;
    }
    return LATHE_OK;
}

static lathe_status check_patterns(const targets *t, const char *const *modules, int32_t n_modules)
{
    char entry[256];
    int32_t hits;
    LATHE_TRY(try_pattern(t, t->compiled, modules, n_modules, &hits)); /* 0: said below */
    LATHE_TRY(try_pattern(t, t->exclude_compiled, modules, n_modules, &hits));
    if (t->exclude_compiled == NULL || hits > 0)
        return LATHE_OK;
    (void)snprintf(entry, sizeof entry, "exclude_pattern \"%.100s\"", t->exclude_pattern);
    return idle(t, "exclude_pattern", entry);
}

/* Finds layers that no module is in. */
static lathe_status check_layers(const targets *t, const char *const *modules, int32_t n_modules)
{
    for (int64_t i = 0; i < t->n_layers; i++) {
        int32_t m = 0;
        for (const char *number; m < n_modules; m++)
            if ((number = number_of(t, modules[m])) != NULL &&
                strtoll(number, NULL, 10) == (long long)t->layers[i])
                break;
        if (m < n_modules)
            continue;
        if (t->strict)
            return lathe_fail_at(t->host, LATHE_E_CONFIG, "layers_to_transform",
                                 "%s: layers_to_transform[%lld]: the model has no layer %lld",
                                 t->method, (long long)i, (long long)t->layers[i]);
        lathe_warn(t->host, "%s: layers_to_transform[%lld]: the model has no layer %lld", t->method,
                   (long long)i, (long long)t->layers[i]);
    }
    return LATHE_OK;
}

static int includes_module(const void *of_targets, const char *module)
{
    return includes(of_targets, module);
}

/* Checks the modules that are wrapped. */
static lathe_status check_wrapped(const targets *t, const char *const *modules, int32_t n_modules)
{
    if (!t->all_linear && t->compiled == NULL)
        LATHE_TRY(check_ends(t, "target_modules", t->names, t->n, modules, n_modules));
    LATHE_TRY(check_ends(t, "exclude_modules", t->excluded, t->n_excluded, modules, n_modules));
    LATHE_TRY(check_patterns(t, modules, n_modules));
    LATHE_TRY(check_layers(t, modules, n_modules));
    for (int32_t m = 0; m < n_modules; m++)
        if (includes(t, modules[m]))
            return LATHE_OK;
    if (t->compiled)
        return lathe_fail_at(
            t->host, LATHE_E_NOT_FOUND, "target_pattern",
            "%s: target_pattern \"%s\" matches no module that is not excluded, and it "
            "covers whole names (\".*q_proj\")",
            t->method, t->pattern);
    const char *key = t->n_excluded > 0    ? "exclude_modules"
                      : t->exclude_pattern ? "exclude_pattern"
                      : t->n_layers > 0    ? "layers_to_transform"
                      : t->saved.n > 0     ? "modules_to_save"
                                           : "target_modules";
    return lathe_fail_at(t->host, LATHE_E_CONFIG, key, "%s: %s leaves nothing to train", t->method,
                         key);
}

int32_t targets_n_outer(const targets *t, const char *const *modules, int32_t n_modules)
{
    int32_t n = 0;
    while (t->takes_outer && !t->all_linear && modules[n_modules + n] != NULL)
        n++;
    return n;
}

lathe_status targets_check(const targets *t, const char *const *modules, int32_t n_modules,
                           const char *const *params, int32_t n_params)
{
    n_modules += targets_n_outer(t, modules, n_modules);
    LATHE_TRY(check_wrapped(t, modules, n_modules));
    return saved_modules_check(&t->saved, modules, n_modules, params, n_params, includes_module, t);
}

/* Whether the parameter is the bias of a linear layer that is wrapped. */
static int is_bias_of_target(const targets *t, const lathe_param_info *param)
{
    char module[512];
    if (!LATHE_HAS(param, of_site) || !param->of_site ||
        !saved_modules_bias_of(param->name, module, (int64_t)sizeof module))
        return 0;
    return includes(t, module) && !(t->all_linear && param->layer < 0);
}

lathe_status targets_select(const targets *t, const lathe_param_info *param, int32_t *out_trainable)
{
    char module[512];
    const saved_modules *s = &t->saved;
    const int is_bias = saved_modules_bias_of(param->name, module, (int64_t)sizeof module);
    *out_trainable = param->role == LATHE_ROLE_ADAPTER;
    if (saved_modules_have(s, param->name)) {
        *out_trainable = 1;
        return saved_modules_check_tied(s, param);
    }
    if ((s->bias == BIAS_ALL && is_bias) ||
        (s->bias == BIAS_OF_TARGETS && is_bias_of_target(t, param)))
        *out_trainable = 1;
    return LATHE_OK;
}

/* Whether wrap has seen modules with this last part of the name. */
static int was_wrapped(const targets *t, const char *module)
{
    const char *dot = strrchr(module, '.');
    for (int i = 0; i < t->n_seen; i++)
        if (strcmp(t->seen[i], dot != NULL ? dot + 1 : module) == 0)
            return includes(t, module);
    return 0;
}

int64_t targets_file_key(const targets *t, const char *param_name, char *out, int64_t capacity)
{
    char module[512];
    const size_t room = capacity > 0 ? (size_t)capacity : 0;
    if (saved_modules_bias_of(param_name, module, (int64_t)sizeof module) && was_wrapped(t, module))
        return snprintf(out, room, "base_model.model.%s.base_layer.bias", module);
    return snprintf(out, room, "base_model.model.%s", param_name);
}

const lathe_site_param *targets_find_param(const lathe_site_param *params, int32_t n_params,
                                           const char *end)
{
    for (int32_t i = 0; i < n_params; i++)
        if (ends_in(params[i].name, end))
            return &params[i];
    return NULL;
}

int32_t adapter_base_is_frozen(void *self)
{
    (void)self;
    return 1;
}

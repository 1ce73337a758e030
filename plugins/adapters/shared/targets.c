/* The modules that an adapter wraps. */
#include "shared/targets.h"

#include <stdio.h>
#include <string.h>

static lathe_status read_pattern(targets *t)
{
    char text[1024];
    if (!t->all_linear)
        return lathe_fail(t->host, LATHE_E_CONFIG,
                          "%s: target_pattern and target_modules both choose modules; set one",
                          t->method);
    t->all_linear = 0;
    const int n = snprintf(text, sizeof text, "^(?:%s)$", t->pattern);
    if (t->pattern[0] == '\0' || n < 0 || (size_t)n >= sizeof text)
        return lathe_fail(t->host, LATHE_E_CONFIG,
                          "%s: target_pattern has %d characters; expected 1 to %d", t->method,
                          n - 6, (int)sizeof text - 7);
    if (t->host->pattern_create(text, &t->compiled) != LATHE_OK)
        return lathe_fail(t->host, LATHE_E_CONFIG,
                          "%s: target_pattern \"%s\" is no regular expression", t->method,
                          t->pattern);
    return LATHE_OK;
}

lathe_status targets_read(targets *t, const lathe_host *host, const char *method,
                          const lathe_value values[TARGETS_N_FIELDS], const lathe_value *ties)
{
    const lathe_value *list = &values[TARGETS_MODULES], *excluded = &values[TARGETS_EXCLUDE];
    t->host = host;
    t->method = method;
    t->names = list->strs;
    t->n = list->n;
    t->pattern = values[TARGETS_PATTERN].is_set ? values[TARGETS_PATTERN].s : NULL;
    t->excluded = excluded->strs;
    t->n_excluded = excluded->is_set ? excluded->n : 0;
    if (list->n == 0)
        return lathe_fail(host, LATHE_E_CONFIG, "%s: target_modules is empty: nothing would train",
                          method);
    for (int64_t i = 0; i < list->n; i++) {
        if (list->strs[i][0] == '\0')
            return lathe_fail(host, LATHE_E_CONFIG, "%s: target_modules[%lld] is empty", method,
                              (long long)i);
        t->all_linear |= strcmp(list->strs[i], "all-linear") == 0;
    }
    for (int64_t i = 0; i < t->n_excluded; i++)
        if (t->excluded[i][0] == '\0')
            return lathe_fail(host, LATHE_E_CONFIG, "%s: exclude_modules[%lld] is empty", method,
                              (long long)i);
    if (t->all_linear && list->n > 1)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "%s: target_modules has \"all-linear\" and %lld more; \"all-linear\" "
                          "must be the only entry",
                          method, (long long)(list->n - 1));
    LATHE_TRY(saved_modules_read(&t->saved, host, method, &values[TARGETS_SAVED],
                                 &values[TARGETS_BIAS], ties));
    return t->pattern ? read_pattern(t) : LATHE_OK;
}

void targets_fini(targets *t)
{
    if (t->compiled)
        t->host->pattern_free(t->compiled);
    t->compiled = NULL;
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

/* Whether a module of that name is one of them, where all linear ones but the head may be. */
static int includes(const targets *t, const char *module)
{
    int64_t span[2];
    if (ends_in_one(module, t->excluded, t->n_excluded) || saved_modules_exclude(&t->saved, module))
        return 0;
    if (t->compiled)
        return t->host->pattern_find(t->compiled, module, (int64_t)strlen(module), 0, span, 1) > 0;
    return t->all_linear || ends_in_one(module, t->names, t->n);
}

int32_t targets_include(const targets *t, const lathe_site *site)
{
    if (t->all_linear && site->layer < 0) /* the head is outside the layers */
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
    if (t->n_seen == TARGETS_MOST_NAMES || strlen(name) >= sizeof t->seen[0])
        return lathe_fail(t->host, LATHE_E_UNSUPPORTED,
                          "%s: all-linear meets more than %d kinds of module at %s", t->method,
                          TARGETS_MOST_NAMES, site->module);
    memcpy(t->seen[t->n_seen++], name, strlen(name) + 1);
    return LATHE_OK;
}

/* The first of the ends that no module has; -1: none. */
static int64_t idle_one(const char *const *ends, int64_t n, const char *const *modules,
                        int32_t n_modules)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t m = 0;
        while (m < n_modules && !ends_in(modules[m], ends[i]))
            m++;
        if (m == n_modules)
            return i;
    }
    return -1;
}

static int includes_module(const void *of_targets, const char *module)
{
    return includes(of_targets, module);
}

/* Checks the modules that are wrapped. */
static lathe_status check_wrapped(const targets *t, const char *const *modules, int32_t n_modules)
{
    int64_t idle = t->all_linear || t->compiled ? -1 : idle_one(t->names, t->n, modules, n_modules);
    if (idle >= 0)
        return lathe_fail(t->host, LATHE_E_CONFIG,
                          "%s: target_modules[%lld] = \"%s\" matches no module", t->method,
                          (long long)idle, t->names[idle]);
    idle = idle_one(t->excluded, t->n_excluded, modules, n_modules);
    if (idle >= 0)
        return lathe_fail(t->host, LATHE_E_CONFIG,
                          "%s: exclude_modules[%lld] = \"%s\" matches no module", t->method,
                          (long long)idle, t->excluded[idle]);
    for (int32_t m = 0; m < n_modules; m++)
        if (includes(t, modules[m]))
            return LATHE_OK;
    if (t->compiled)
        return lathe_fail(
            t->host, LATHE_E_CONFIG,
            "%s: target_pattern \"%s\" matches no module that is not excluded, and it "
            "covers whole names (\".*q_proj\")",
            t->method, t->pattern);
    return lathe_fail(t->host, LATHE_E_CONFIG, "%s: %s leaves nothing to train", t->method,
                      t->n_excluded > 0 ? "exclude_modules" : "modules_to_save");
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

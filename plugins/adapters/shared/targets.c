/* The modules that an adapter wraps. */
#include "shared/targets.h"

#include <stdio.h>
#include <string.h>

lathe_status targets_read(targets *t, const lathe_host *host, const char *method,
                          const lathe_value *list)
{
    t->host = host;
    t->method = method;
    t->names = list->strs;
    t->n = list->n;
    if (list->n == 0)
        return lathe_fail(host, LATHE_E_CONFIG, "%s: target_modules is empty: nothing would train",
                          method);
    for (int64_t i = 0; i < list->n; i++) {
        if (list->strs[i][0] == '\0')
            return lathe_fail(host, LATHE_E_CONFIG, "%s: target_modules[%lld] is empty", method,
                              (long long)i);
        t->all_linear |= strcmp(list->strs[i], "all-linear") == 0;
    }
    if (t->all_linear && list->n > 1)
        return lathe_fail(host, LATHE_E_CONFIG,
                          "%s: target_modules has \"all-linear\" and %lld more; \"all-linear\" "
                          "must be the only entry",
                          method, (long long)(list->n - 1));
    return LATHE_OK;
}

/* Whether `name` is `suffix` or ends in ".suffix". */
static int ends_in(const char *name, const char *suffix)
{
    const size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0 && (n == m || name[n - m - 1] == '.');
}

int32_t targets_include(const targets *t, const lathe_site *site)
{
    if (t->all_linear)
        return site->layer >= 0; /* the head is outside the layers */
    for (int64_t i = 0; i < t->n; i++)
        if (ends_in(site->module, t->names[i]))
            return 1;
    return 0;
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

lathe_status targets_check(const targets *t, const char *const *modules, int32_t n_modules)
{
    for (int64_t i = 0; i < t->n && !t->all_linear; i++) {
        int32_t m = 0;
        while (m < n_modules && !ends_in(modules[m], t->names[i]))
            m++;
        if (m == n_modules)
            return lathe_fail(t->host, LATHE_E_CONFIG,
                              "%s: target_modules[%lld] = \"%s\" matches no module", t->method,
                              (long long)i, t->names[i]);
    }
    return LATHE_OK;
}

const lathe_site_param *targets_find_param(const lathe_site_param *params, int32_t n_params,
                                           const char *end)
{
    for (int32_t i = 0; i < n_params; i++)
        if (ends_in(params[i].name, end))
            return &params[i];
    return NULL;
}

lathe_status adapter_select_own(void *self, const lathe_param_info *param, int32_t *out_trainable,
                                int32_t *out_group)
{
    (void)self;
    *out_trainable = param->role == LATHE_ROLE_ADAPTER;
    *out_group = 0;
    return LATHE_OK;
}

int32_t adapter_base_is_frozen(void *self)
{
    (void)self;
    return 1;
}

int64_t adapter_file_key(void *self, const char *param_name, char *out, int64_t capacity)
{
    (void)self;
    return snprintf(out, capacity > 0 ? (size_t)capacity : 0, "base_model.model.%s", param_name);
}

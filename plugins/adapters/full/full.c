/* Full fine-tuning: every parameter trains, except those whose names match `no_train`. */
#include <string.h>

#include "lathe/adapter.h"
#include "lathe/plugin.h"

typedef struct full {
    const lathe_host *host;
    const char *const *no_train; /* patterns, borrowed from the configuration */
    int64_t n_no_train;
} full;

enum { FIELD_NO_TRAIN, N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    {"no_train", LATHE_T_STRING_LIST, 0, "[]", LATHE_NO_RANGE, NULL, NULL,
     "parameters that are not trained: patterns for whole names; * matches any characters"},
};

/* Whether all of `text` matches `pattern`, where * stands for any run of characters. Linear in
 * practice: on a mismatch only the last * is extended. */
static int glob_matches(const char *pattern, const char *text)
{
    const char *star = NULL, *resume = NULL;
    while (*text != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            resume = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star + 1;
            text = ++resume;
        } else {
            return 0;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

static lathe_status full_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                                void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "full: got %d values, expected %d", n_values,
                          N_FIELDS);
    const lathe_value *list = &values[FIELD_NO_TRAIN];
    for (int64_t i = 0; list->is_set && i < list->n; i++)
        if (list->strs[i][0] == '\0')
            return lathe_fail(host, LATHE_E_CONFIG, "full: no_train[%lld] is empty", (long long)i);
    full *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "full: no memory for the instance");
    self->host = host;
    self->no_train = list->strs;
    self->n_no_train = list->is_set ? list->n : 0;
    *out_self = self;
    return LATHE_OK;
}

static void full_destroy(void *self)
{
    if (self != NULL)
        ((full *)self)->host->free(self);
}

static lathe_status full_select(void *self, const lathe_param_info *param, int32_t *out_trainable,
                                int32_t *out_group)
{
    const full *f = self;
    *out_group = 0;
    *out_trainable = 1;
    for (int64_t i = 0; i < f->n_no_train; i++)
        if (glob_matches(f->no_train[i], param->name))
            *out_trainable = 0;
    if (*out_trainable && param->quantized)
        return lathe_fail(f->host, LATHE_E_CONFIG,
                          "full: %s is quantized and cannot train; use [quant] name = \"none\", an "
                          "adapter over frozen weights (lora), or list it in no_train",
                          param->name);
    return LATHE_OK;
}

/* A misspelt pattern would silently train parameters that should be frozen. */
static lathe_status full_check(void *self, const char *const *modules, int32_t n_modules,
                               const char *const *params, int32_t n_params)
{
    const full *f = self;
    (void)modules;
    (void)n_modules;
    for (int64_t i = 0; i < f->n_no_train; i++) {
        int32_t p = 0;
        while (p < n_params && !glob_matches(f->no_train[i], params[p]))
            p++;
        if (p == n_params)
            return lathe_fail(
                f->host, LATHE_E_CONFIG,
                "full: no_train[%lld] = \"%s\" matches no parameter, and patterns cover "
                "whole names (\"*.mlp.*\")",
                (long long)i, f->no_train[i]);
    }
    return LATHE_OK;
}

static const lathe_adapter_v1 table = {
    .size = sizeof table,
    .revision = LATHE_ADAPTER_REVISION,
    .select = full_select,
    .check = full_check,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_ADAPTER,
    .revision = LATHE_ADAPTER_REVISION,
    .n_fields = N_FIELDS,
    .name = "full",
    .version = "1.0.0",
    .summary = "full fine-tuning: every parameter trains",
    .source = "ours",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = full_create,
    .destroy = full_destroy,
};

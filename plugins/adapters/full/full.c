/* Full fine-tuning: every parameter trains, except those whose names match `no_train`. */
#include "lathe/adapter.h"
#include "lathe/plugin.h"
#include "shared/name_pattern.h"

typedef struct full {
    const lathe_host *host;
    lathe_value no_train; /* its patterns are borrowed from the configuration */
} full;

enum { FIELD_NO_TRAIN, N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    {"no_train", LATHE_T_STRING_LIST, 0, "[]", LATHE_NO_RANGE, NULL, NULL,
     "parameters that are not trained: patterns for whole names; * matches any characters"},
};

static lathe_status full_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                                void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values, N_FIELDS);
    LATHE_TRY(name_patterns_check(host, "no_train", &values[FIELD_NO_TRAIN]));
    full *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the instance");
    self->host = host;
    self->no_train = values[FIELD_NO_TRAIN];
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
    *out_trainable = !name_in(&f->no_train, param->name);
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
    return name_patterns_match(f->host, "full", "no_train", &f->no_train, params, n_params);
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

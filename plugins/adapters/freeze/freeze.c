/* Freeze-tuning: the last or the first layers train, or parts of them, and nothing else that is not
 * named. */
#include "lathe/adapter.h"
#include "lathe/plugin.h"
#include "shared/name_pattern.h"

typedef struct freeze {
    const lathe_host *host;
    int64_t layers;
    lathe_value modules, extra; /* their patterns are borrowed from the configuration */
} freeze;

enum { FIELD_LAYERS, FIELD_MODULES, FIELD_EXTRA, N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    {"layers", LATHE_T_INT, 0, "2", -100000, 100000, NULL, "layers",
     "number of the last layers that train; below 0: of the first ones"},
    {"modules", LATHE_T_STRING_LIST, 0, "[]", LATHE_NO_RANGE, NULL, NULL,
     "parameters of these layers that train: patterns for whole names, * matches any characters; "
     "empty: all of them"},
    {"extra", LATHE_T_STRING_LIST, 0, "[]", LATHE_NO_RANGE, NULL, NULL,
     "further parameters that train, of any place in the model: patterns for whole names"},
};

static lathe_status freeze_create(const lathe_host *host, const lathe_value *values,
                                  int32_t n_values, void **out_self)
{
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values, N_FIELDS);
    const lathe_value *modules = &values[FIELD_MODULES], *extra = &values[FIELD_EXTRA];
    const int64_t layers = values[FIELD_LAYERS].i;
    LATHE_TRY(name_patterns_check(host, "modules", modules));
    LATHE_TRY(name_patterns_check(host, "extra", extra));
    if (layers == 0 && modules->is_set && modules->n > 0)
        return lathe_fail_at(host, LATHE_E_CONFIG, "modules",
                             "modules chooses among the layers that train, and layers = 0 "
                             "trains none; list parameters of other places in extra");
    if (layers == 0 && (!extra->is_set || extra->n == 0))
        return lathe_fail_at(host, LATHE_E_CONFIG, "layers",
                             "layers = 0 without extra leaves nothing to train");
    freeze *self = host->alloc((int64_t)sizeof *self);
    if (self == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the instance");
    *self = (freeze){host, layers, *modules, *extra};
    *out_self = self;
    return LATHE_OK;
}

static void freeze_destroy(void *self)
{
    if (self != NULL)
        ((freeze *)self)->host->free(self);
}

/* Whether the parameter belongs to the layers that train. */
static int in_layers(const freeze *f, const lathe_param_info *p)
{
    if (p->layer < 0)
        return 0;
    return f->layers < 0 ? p->layer < -f->layers : p->layer >= p->n_layers - f->layers;
}

static lathe_status freeze_select(void *self, const lathe_param_info *param, int32_t *out_trainable,
                                  int32_t *out_group)
{
    const freeze *f = self;
    const int64_t n = f->layers < 0 ? -f->layers : f->layers;
    const int all_of_them = !f->modules.is_set || f->modules.n == 0;
    *out_group = 0;
    if (n > param->n_layers && param->n_layers > 0)
        return lathe_fail_at(f->host, LATHE_E_CONFIG, "layers",
                             "freeze: layers = %lld, and the model has %d layers",
                             (long long)f->layers, (int)param->n_layers);
    *out_trainable = (in_layers(f, param) && (all_of_them || name_in(&f->modules, param->name))) ||
                     name_in(&f->extra, param->name);
    if (*out_trainable && param->quantized)
        return lathe_fail(f->host, LATHE_E_CONFIG,
                          "freeze: %s is quantized and cannot train; use [quant] name = \"none\", "
                          "or an adapter over frozen weights (lora)",
                          param->name);
    return LATHE_OK;
}

static lathe_status freeze_check(void *self, const char *const *modules, int32_t n_modules,
                                 const char *const *params, int32_t n_params)
{
    const freeze *f = self;
    (void)modules;
    (void)n_modules;
    LATHE_TRY(name_patterns_match(f->host, "freeze", "modules", &f->modules, params, n_params));
    return name_patterns_match(f->host, "freeze", "extra", &f->extra, params, n_params);
}

static const lathe_adapter_v1 table = {
    .size = sizeof table,
    .revision = LATHE_ADAPTER_REVISION,
    .select = freeze_select,
    .check = freeze_check,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_ADAPTER,
    .revision = LATHE_ADAPTER_REVISION,
    .n_fields = N_FIELDS,
    .name = "freeze",
    .version = "1.0.0",
    .summary = "freeze-tuning: the last or first layers train, the rest is frozen",
    .source = "LLaMA-Factory, arXiv:2403.13372",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = freeze_create,
    .destroy = freeze_destroy,
};

/* LoRA+: LoRA whose B learns faster than A, by the factor lr_ratio.
 *
 * Source: arXiv:2402.12354; PEFT's create_loraplus_optimizer for the name and meaning of the ratio.
 */
#include <string.h>

#include "lathe/plugin.h"
#include "shared/lora.h"

enum { FIELD_LR_RATIO = LORA_N_FIELDS_WITH_LOFTQ, N_FIELDS };

static const lathe_field fields[N_FIELDS] = {
    LORA_FIELDS(LORA_TRAINED_INITS),
    LORA_LOFTQ_FIELD,
    {"lr_ratio", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "16.0", 0.0, 1e6, NULL, "1",
     "learning rate of B over that of A, which is the optimizer's"},
};

static lathe_status lora_plus_create(const lathe_host *host, const lathe_value *values,
                                     int32_t n_values, void **out_self)
{
    lora *self = NULL;
    if (n_values != N_FIELDS)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values, N_FIELDS);
    LATHE_TRY(lora_open(host, "lora_plus", values, n_values, &self));
    self->lr_ratio = values[FIELD_LR_RATIO].f;
    *out_self = self;
    return LATHE_OK;
}

static double lora_plus_rate(void *self, const char *param_name)
{
    return strstr(param_name, ".lora_B.") != NULL ? ((lora *)self)->lr_ratio : 1.0;
}

static const lathe_adapter_v1 table = {
    .size = sizeof table,
    .revision = LATHE_ADAPTER_REVISION,
    .select = lora_select,
    .targets = lora_targets,
    .wrap = lora_wrap,
    .base_is_frozen = adapter_base_is_frozen,
    .merge = lora_merge,
    .adds_bias = lora_adds_bias,
    .merge_bias = lora_merge_bias,
    .file_key = lora_file_key,
    .config_json = lora_config_json,
    .unties = lora_unties,
    .check = lora_check,
    .needs_quantized_base = lora_uses_loftq,
    .starts_elsewhere = lora_uses_loftq,
    .embed = lora_embed,
    .head = lora_head,
    .rate = lora_plus_rate,
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_ADAPTER,
    .revision = LATHE_ADAPTER_REVISION,
    .n_fields = N_FIELDS,
    .name = "lora_plus",
    .version = "1.0.0",
    .summary = "LoRA whose second matrix learns faster than the first",
    .source = "arXiv:2402.12354",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = lora_plus_create,
    .destroy = lora_destroy,
};

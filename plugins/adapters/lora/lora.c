/* Adapter lora: LoRA with one learning rate for A and B. */
#include "shared/lora.h"
#include "lathe/plugin.h"

static const lathe_field fields[LORA_N_FIELDS_WITH_LOFTQ] = {LORA_FIELDS(LORA_ALL_INITS),
                                                             LORA_LOFTQ_FIELD};

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    lora *self = NULL;
    if (n_values != LORA_N_FIELDS_WITH_LOFTQ)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values,
                          LORA_N_FIELDS_WITH_LOFTQ);
    LATHE_TRY(lora_open(host, "lora", values, n_values, &self));
    *out_self = self;
    return LATHE_OK;
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
};

LATHE_EXPORT extern const lathe_plugin LATHE_PLUGIN_ENTRY;
const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_ADAPTER,
    .revision = LATHE_ADAPTER_REVISION,
    .n_fields = LORA_N_FIELDS_WITH_LOFTQ,
    .name = "lora",
    .version = "1.0.0",
    .summary = "low-rank updates beside frozen linear layers",
    .source = "arXiv:2106.09685",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = create,
    .destroy = lora_destroy,
};

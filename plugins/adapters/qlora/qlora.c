/* QLoRA: LoRA beside a quantized base. It computes what lora computes; it refuses a base in full
 * precision, so that a run file that says "qlora" never trains without quantization by mistake.
 *
 * Source: arXiv:2305.14314.
 */
#include "lathe/plugin.h"
#include "shared/lora.h"

static const lathe_field fields[LORA_N_FIELDS_WITH_LOFTQ] = {LORA_FIELDS(LORA_QUANTIZED_INITS),
                                                             LORA_LOFTQ_FIELD};

static lathe_status qlora_create(const lathe_host *host, const lathe_value *values,
                                 int32_t n_values, void **out_self)
{
    lora *self = NULL;
    if (n_values != LORA_N_FIELDS_WITH_LOFTQ)
        return lathe_fail(host, LATHE_E_ARG, "got %d values, expected %d", n_values,
                          LORA_N_FIELDS_WITH_LOFTQ);
    LATHE_TRY(lora_open(host, "qlora", values, n_values, &self));
    *out_self = self;
    return LATHE_OK;
}

static int32_t qlora_needs_quantized_base(void *self)
{
    (void)self;
    return 1;
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
    .needs_quantized_base = qlora_needs_quantized_base,
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
    .name = "qlora",
    .version = "1.0.0",
    .summary = "LoRA beside frozen linear layers that are quantized",
    .source = "arXiv:2305.14314",
    .license = "Apache-2.0",
    .fields = fields,
    .table = &table,
    .create = qlora_create,
    .destroy = lora_destroy,
};

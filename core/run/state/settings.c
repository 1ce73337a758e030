/* Reads the run's settings. */
#include "run/state/settings.h"
#include "config/config_fill.h"

#include <string.h>

#include "config/config.h"
#include "exec/program/precision.h"

static void precision_dtype(const lathe_config *config, const lathe_value *value, void *out)
{
    (void)config;
    *(int32_t *)out = lathe_precision_dtype(value->s);
}

static void teacher_dtype(const lathe_config *config, const lathe_value *value, void *out)
{
    (void)config;
    *(int32_t *)out = value->s && strcmp(value->s, "auto") == 0 ? LATHE_TEACHER_AUTO
                                                                : lathe_precision_dtype(value->s);
}

#define KEY(key, c_type, member, form, convert, ...)                                               \
    LATHE_KEY_OF(lathe_settings, key, member, form, convert)
#define KEY_ALONE(...)
static const lathe_key adapter_keys[] = {
#include "plug/keys_adapter.inc"
};
static const lathe_key data_keys[] = {
#include "plug/keys_data.inc"
};
static const lathe_key generate_keys[] = {
#include "plug/keys_generate.inc"
};
static const lathe_key log_keys[] = {
#include "plug/keys_log.inc"
};
static const lathe_key model_keys[] = {
#include "plug/keys_model.inc"
};
static const lathe_key parallel_keys[] = {
#include "plug/keys_parallel.inc"
};
static const lathe_key quant_keys[] = {
#include "plug/keys_quant.inc"
};
static const lathe_key teacher_keys[] = {
#include "plug/keys_teacher.inc"
};
static const lathe_key tokenizer_keys[] = {
#include "plug/keys_tokenizer.inc"
};
static const lathe_key train_keys[] = {
#include "plug/keys_train.inc"
};

#undef KEY
#define KEY(key, c_type, member, form, convert, ...)                                               \
    LATHE_KEY_OF(lathe_moe_settings, key, member, form, convert)
static const lathe_key moe_keys[] = {
#include "plug/keys_moe.inc"
};

#define N_KEYS(keys) (int32_t)(sizeof(keys) / sizeof((keys)[0]))
static const struct {
    const char *name;
    const lathe_key *keys;
    int32_t n;
} sections[] = {{"adapter", adapter_keys, N_KEYS(adapter_keys)},
                {"data", data_keys, N_KEYS(data_keys)},
                {"generate", generate_keys, N_KEYS(generate_keys)},
                {"log", log_keys, N_KEYS(log_keys)},
                {"model", model_keys, N_KEYS(model_keys)},
                {"parallel", parallel_keys, N_KEYS(parallel_keys)},
                {"quant", quant_keys, N_KEYS(quant_keys)},
                {"teacher", teacher_keys, N_KEYS(teacher_keys)},
                {"tokenizer", tokenizer_keys, N_KEYS(tokenizer_keys)},
                {"train", train_keys, N_KEYS(train_keys)}};

void lathe_settings_read(const lathe_config *config, lathe_settings *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        lathe_config_fill(config, sections[i].name, sections[i].keys, sections[i].n, out);
    lathe_checkpoint_settings_read(config, &out->checkpoint);
    lathe_config_fill(config, "moe", moe_keys, N_KEYS(moe_keys), &out->moe);
    out->compute_dtype = out->precision;
}

int lathe_settings_has_validation(const lathe_settings *set)
{
    return set->validation_split > 0.0 || set->validation_count > 0 || set->validation != NULL;
}

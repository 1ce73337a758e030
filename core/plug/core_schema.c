/* The schemas of the core's own tables. Those of sections and of tables inside them come from the
 * rows of keys_*.inc (config_keys.h); the keys that the core adds to the tables of plugins are
 * below. `lathe show`, the man pages and the tables in docs/ print the texts. */
#include "plug/core_schema.h"

#include <string.h>

#include "plug/config_keys.h"

/* A row becomes a field of the schema. */
#define KEY(key, c_type, member, form, convert, ...) {key, __VA_ARGS__},
#define KEY_ALONE(key, ...) {key, __VA_ARGS__},

#define STRING(key, def, choices, doc) LATHE_FIELD_STRING(key, def, choices, doc)
#define TABLE(key, doc)                                                                            \
    {                                                                                              \
        key, LATHE_T_TABLE, 0, NULL, LATHE_NO_RANGE, NULL, NULL, doc                               \
    }

/* Keys of [model] besides those of the plugin that serves the model_type. */
static const lathe_field model_fields[] = {
#include "plug/keys_model.inc"
};

static const lathe_field data_fields[] = {
#include "plug/keys_data.inc"
};

static const lathe_field dataset_fields[] = {
#include "plug/keys_dataset.inc"
};

static const lathe_field dataset_column_fields[] = {
#include "plug/keys_dataset_columns.inc"
};

static const lathe_field dataset_format_fields[] = {
#include "plug/keys_dataset_format.inc"
};

static const lathe_field tokenizer_fields[] = {
#include "plug/keys_tokenizer.inc"
};

static const lathe_field tokenizer_train_fields[] = {
#include "plug/keys_tokenizer_train.inc"
};

static const lathe_field train_fields[] = {
#include "plug/keys_train.inc"
};

static const lathe_field checkpoint_fields[] = {
#include "plug/keys_checkpoint.inc"
};

static const lathe_field generate_fields[] = {
#include "plug/keys_generate.inc"
};

static const lathe_field log_fields[] = {
#include "plug/keys_log.inc"
};

static const lathe_field moe_fields[] = {
#include "plug/keys_moe.inc"
};

static const lathe_field teacher_fields[] = {
#include "plug/keys_teacher.inc"
};

static const lathe_field parallel_fields[] = {
#include "plug/keys_parallel.inc"
};

static const lathe_field plugins_fields[] = {
#include "plug/keys_plugins.inc"
};
/* Keys that the core adds to every optimizer's table, after the plugin's own keys. */
static const lathe_field optimizer_fields[] = {
    {"no_decay_modules", LATHE_T_STRING_LIST, 0, "[]", LATHE_NO_RANGE, NULL, NULL,
     "modules without weight decay: one part of a module's path (\"embed_tokens\"), or a pattern "
     "for the whole path (\"model.layers.0.*\"); norms and biases never have weight decay"},
    {"no_decay_params", LATHE_T_STRING_LIST, 0, "[]", LATHE_NO_RANGE, NULL, NULL,
     "parameters without weight decay: patterns for whole parameter names"},
    TABLE("groups", "array of { name, params, lr, weight_decay }; a parameter belongs to the first "
                    "group that matches it"),
};

/* Keys that the core adds to the table of every adapter. */
static const lathe_field adapter_fields[] = {
#include "plug/keys_adapter.inc"
};

/* Keys that the core adds to the table of every quantization format. */
static const lathe_field quant_fields[] = {
    {"include_modules", LATHE_T_STRING_LIST, 0, "[]", LATHE_NO_RANGE, NULL, NULL,
     "linear layers to quantize: one part of a module's path (\"mlp\"), or a pattern for the whole "
     "path (\"model.layers.0.*\"); unset: all that do not train"},
    {"exclude_modules", LATHE_T_STRING_LIST, 0, "[]", LATHE_NO_RANGE, NULL, NULL,
     "linear layers to leave as they are, by the same patterns (\"lm_head\")"},
#include "plug/keys_quant.inc"
};

/* Keys that the core adds to every table of a reward. */
static const lathe_field reward_fields[] = {
    STRING("model", NULL, NULL,
           "folder of a reward model (stage rm), whose score is the reward; instead of name"),
    STRING("label", NULL, NULL,
           "name in metrics and messages; unset: the plugin's name, or \"model\""),
    LATHE_FIELD_FLOAT("weight", "1.0", -1e6, 1e6, "1",
                      "factor of its scores in the sum of all rewards"),
    {"timeout_seconds", LATHE_T_FLOAT, LATHE_FIELD_MIN_EXCLUSIVE, "60.0", 0.0, 86400.0, NULL, "s",
     "time to score one batch of completions; a reward that needs longer has failed"},
    LATHE_FIELD_INT(
        "retries", "0", 0, 1000, "1",
        "how often a batch of completions that could not be scored is tried again, by a "
        "new instance of the reward; then the run writes a checkpoint and ends"),
};

static const lathe_field group_fields[] = {
#include "plug/keys_groups.inc"
};

#define N_FIELDS(list) (int32_t)(sizeof(list) / sizeof((list)[0]))
#define SECTION(name, key, list, doc)                                                              \
    {                                                                                              \
        name, key, list, N_FIELDS(list), doc, NULL                                                 \
    }
#define FORMATS(name)                                                                              \
    {                                                                                              \
        name, "format", dataset_format_fields, N_FIELDS(dataset_format_fields),                    \
            "columns made of fields of a record", "text"                                           \
    }

static const lathe_core_section sections[] = {
    SECTION("model", NULL, model_fields, "the model: a folder, or the shape of a new one"),
    SECTION("data", NULL, data_fields, "the data of training and evaluation"),
    SECTION("tokenizer", NULL, tokenizer_fields, "the tokenizer"),
    SECTION("train", NULL, train_fields, "the training"),
    SECTION("checkpoint", NULL, checkpoint_fields, "checkpoints and resuming"),
    SECTION("generate", NULL, generate_fields, "sampling from the model"),
    SECTION("log", NULL, log_fields, "log and progress output"),
    SECTION("moe", NULL, moe_fields, "the routers of a model with experts"),
    SECTION("teacher", NULL, teacher_fields, "the model that a stage learns from"),
    SECTION("parallel", NULL, parallel_fields, "training on several ranks"),
    SECTION("plugins", NULL, plugins_fields, "the plugins' folders and checks"),
};

static const lathe_core_section tables[] = {
    SECTION("data", "datasets", dataset_fields, "keys of each dataset"),
    SECTION("data.datasets", "columns", dataset_column_fields, "the file's names for the columns"),
    FORMATS("data.datasets"),
    /* without the last key, weight, because an evaluation uses every row once */
    {"data", "validation", dataset_fields, N_FIELDS(dataset_fields) - 1,
     "keys of each dataset for evaluation", NULL},
    SECTION("data.validation", "columns", dataset_column_fields,
            "the file's names for the columns"),
    FORMATS("data.validation"),
    SECTION("tokenizer", "train", tokenizer_train_fields, "training a tokenizer from the data"),
    SECTION("optimizer", "groups", group_fields, "keys of each parameter group"),
};

const lathe_core_section *lathe_core_sections(int32_t *out_n)
{
    *out_n = (int32_t)(sizeof sections / sizeof sections[0]);
    return sections;
}

const lathe_core_section *lathe_core_tables(int32_t *out_n)
{
    *out_n = (int32_t)(sizeof tables / sizeof tables[0]);
    return tables;
}

const lathe_core_section *lathe_core_section_find(const char *name)
{
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (strcmp(sections[i].name, name) == 0)
            return &sections[i];
    return NULL;
}

const lathe_core_section *lathe_core_table_find(const char *section, const char *key)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (strcmp(tables[i].name, section) == 0 && strcmp(tables[i].key, key) == 0)
            return &tables[i];
    return NULL;
}

const lathe_field *lathe_core_kind_fields(int32_t kind, int32_t *out_n)
{
    *out_n = 0;
    if (kind == LATHE_KIND_MODEL) {
        *out_n = (int32_t)(sizeof model_fields / sizeof model_fields[0]);
        return model_fields;
    }
    if (kind == LATHE_KIND_REWARD) {
        *out_n = (int32_t)(sizeof reward_fields / sizeof reward_fields[0]);
        return reward_fields;
    }
    if (kind == LATHE_KIND_ADAPTER) {
        *out_n = (int32_t)(sizeof adapter_fields / sizeof adapter_fields[0]);
        return adapter_fields;
    }
    if (kind == LATHE_KIND_QUANT) {
        *out_n = (int32_t)(sizeof quant_fields / sizeof quant_fields[0]);
        return quant_fields;
    }
    if (kind != LATHE_KIND_OPTIMIZER)
        return NULL;
    *out_n = (int32_t)(sizeof optimizer_fields / sizeof optimizer_fields[0]);
    return optimizer_fields;
}

/* Reads adapter_config.json of a folder that PEFT, or a program built on it, wrote.
 *
 * PEFT ignores keys that it does not know. Lathe does not: a key that is set, is not known to be
 * harmless and is not read could change what the adapter computes, so it is refused by name.
 *
 * Source: PEFT 0.21 (LoraConfig, OFTConfig and their parents).
 */
#include "run/folder/peft_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "checkpoint/state/adapter_tensors.h"

enum { OF_LORA = 1, OF_OFT = 2, OF_BOTH = 3 };

typedef struct key_row {
    const char *name;
    int32_t methods; /* OF_* */
    int32_t kind;    /* LATHE_PEFT_* */
    /* REFUSED: its other harmless values, "|" between them; NULL: none */
    const char *harmless;
    const char *why; /* REFUSED: what the adapter computes with it */
} key_row;

static const key_row rows[] = {
    /* of the parents of all methods */
    {"peft_type", OF_BOTH, LATHE_PEFT_READ, NULL, NULL},
    {"task_type", OF_BOTH, LATHE_PEFT_REFUSED, "CAUSAL_LM|SEQ_CLS|FEATURE_EXTRACTION",
     "it is an adapter for another task than language modeling or a sequence's class"},
    {"base_model_name_or_path", OF_BOTH, LATHE_PEFT_READ, NULL, NULL},
    {"revision", OF_BOTH, LATHE_PEFT_HARMLESS, NULL, NULL},
    {"auto_mapping", OF_BOTH, LATHE_PEFT_HARMLESS, NULL, NULL},
    {"peft_version", OF_BOTH, LATHE_PEFT_READ, NULL, NULL},
    {"inference_mode", OF_BOTH, LATHE_PEFT_HARMLESS, NULL, NULL},
    /* of both methods; the model itself says how its weights lie, and PEFT corrects
       fan_in_fan_out by it */
    {"target_modules", OF_BOTH, LATHE_PEFT_READ, NULL, NULL},
    {"exclude_modules", OF_BOTH, LATHE_PEFT_READ, NULL, NULL},
    {"layers_to_transform", OF_BOTH, LATHE_PEFT_READ, NULL, NULL},
    {"layers_pattern", OF_BOTH, LATHE_PEFT_READ, NULL, NULL},
    {"modules_to_save", OF_BOTH, LATHE_PEFT_READ, NULL, NULL},
    {"bias", OF_BOTH, LATHE_PEFT_READ, NULL, NULL},
    {"fan_in_fan_out", OF_BOTH, LATHE_PEFT_HARMLESS, NULL, NULL},
    {"r", OF_BOTH, LATHE_PEFT_READ, NULL, NULL},
    /* LoRA */
    {"lora_alpha", OF_LORA, LATHE_PEFT_READ, NULL, NULL},
    {"lora_dropout", OF_LORA, LATHE_PEFT_READ, NULL, NULL},
    {"use_rslora", OF_LORA, LATHE_PEFT_READ, NULL, NULL},
    {"rank_pattern", OF_LORA, LATHE_PEFT_READ, NULL, NULL},
    {"alpha_pattern", OF_LORA, LATHE_PEFT_READ, NULL, NULL},
    {"init_lora_weights", OF_LORA, LATHE_PEFT_READ, NULL, NULL},
    {"use_dora", OF_LORA, LATHE_PEFT_READ, NULL, NULL},
    {"ensure_weight_tying", OF_LORA, LATHE_PEFT_READ, NULL, NULL},
    {"lora_bias", OF_LORA, LATHE_PEFT_READ, NULL, NULL},
    {"trainable_token_indices", OF_LORA, LATHE_PEFT_READ, NULL, NULL},
    {"layer_replication", OF_LORA, LATHE_PEFT_REFUSED, NULL, "layers of the model are repeated"},
    {"target_parameters", OF_LORA, LATHE_PEFT_READ, NULL, NULL},
    {"alora_invocation_tokens", OF_LORA, LATHE_PEFT_REFUSED, NULL,
     "the adapter (aLoRA) acts only on tokens from these on"},
    {"use_qalora", OF_LORA, LATHE_PEFT_REFUSED, NULL, "A reads averages of groups of inputs"},
    {"qalora_group_size", OF_LORA, LATHE_PEFT_HARMLESS, NULL, NULL}, /* of use_qalora */
    {"kasa_config", OF_LORA, LATHE_PEFT_REFUSED, NULL,
     "the smallest singular values of each weight are dropped, and a diagonal stands between A "
     "and B"},
    {"monteclora_config", OF_LORA, LATHE_PEFT_REFUSED, NULL, "A is drawn at random around a mean"},
    {"use_bdlora", OF_LORA, LATHE_PEFT_REFUSED, NULL, "A or B is made of blocks on a diagonal"},
    {"arrow_config", OF_LORA, LATHE_PEFT_REFUSED, NULL,
     "each token is computed with other adapters"},
    {"megatron_config", OF_LORA, LATHE_PEFT_REFUSED, NULL, "it belongs to a model of Megatron"},
    {"megatron_core", OF_LORA, LATHE_PEFT_HARMLESS, NULL, NULL}, /* of megatron_config */
    /* only the backward pass is another one */
    {"velora_config", OF_LORA, LATHE_PEFT_HARMLESS, NULL, NULL},
    /* details of init_lora_weights, which is read */
    {"loftq_config", OF_LORA, LATHE_PEFT_HARMLESS, NULL, NULL},
    {"eva_config", OF_LORA, LATHE_PEFT_HARMLESS, NULL, NULL},
    {"corda_config", OF_LORA, LATHE_PEFT_HARMLESS, NULL, NULL},
    {"lora_ga_config", OF_LORA, LATHE_PEFT_HARMLESS, NULL, NULL},
    {"runtime_config", OF_LORA, LATHE_PEFT_HARMLESS, NULL, NULL}, /* where PEFT computes */
    /* OFT */
    {"oft_block_size", OF_OFT, LATHE_PEFT_READ, NULL, NULL},
    {"num_cayley_neumann_terms", OF_OFT, LATHE_PEFT_READ, NULL, NULL},
    {"use_cayley_neumann", OF_OFT, LATHE_PEFT_READ, NULL, NULL},
    {"module_dropout", OF_OFT, LATHE_PEFT_HARMLESS, NULL, NULL}, /* of training */
    {"init_weights", OF_OFT, LATHE_PEFT_HARMLESS, NULL, NULL},   /* the file has the values */
    {"coft", OF_OFT, LATHE_PEFT_REFUSED, NULL, "the rotation is kept near the identity"},
    {"eps", OF_OFT, LATHE_PEFT_HARMLESS, NULL, NULL}, /* of coft */
    {"block_share", OF_OFT, LATHE_PEFT_REFUSED, NULL, "all blocks have one rotation"},
};

static const key_row *find_row(int32_t method, const char *key)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if ((rows[i].methods & method) != 0 && strcmp(rows[i].name, key) == 0)
            return &rows[i];
    return NULL;
}

int32_t lathe_peft_key_kind(const char *type, const char *key)
{
    const key_row *row = find_row(strcmp(type, "OFT") == 0 ? OF_OFT : OF_LORA, key);
    return row ? row->kind : LATHE_PEFT_UNKNOWN;
}

lathe_status lathe_peft_config_read(const char *dir, lathe_arena *arena, json_t **out)
{
    const char *path = lathe_path_join(arena, dir, "adapter_config.json");
    *out = NULL;
    if (path == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_path_exists(path) ? lathe_json_load_file(path, out) : LATHE_OK);
    if (*out == NULL || json_is_object(*out))
        return LATHE_OK;
    json_decref(*out);
    *out = NULL;
    return lathe_error(LATHE_E_CONFIG, "%s: expected a JSON object", path);
}

/* ---- what it says ---- */

static int is_empty(const json_t *value)
{
    const char *text = json_string_value(value);
    return value == NULL || json_is_null(value) || json_is_false(value) || (text && !text[0]) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static int has_type(const json_t *peft, const char *type)
{
    const char *found = json_string_value(json_object_get(peft, "peft_type"));
    return found && strcmp(found, type) == 0;
}

int32_t lathe_peft_is_classifier(const json_t *peft)
{
    const char *task = json_string_value(json_object_get(peft, "task_type"));
    return task && strcmp(task, "SEQ_CLS") == 0;
}

int32_t lathe_peft_is_reward(const json_t *peft)
{
    const json_t *saved = json_object_get(peft, "modules_to_save");
    for (size_t i = 0; lathe_peft_is_classifier(peft) && i < json_array_size(saved); i++) {
        const char *name = json_string_value(json_array_get(saved, i));
        if (name && strcmp(name, "score") == 0)
            return 1;
    }
    return 0;
}

/* The lower-case name of the initialization; "": one without a name. */
static const char *init_of(const json_t *peft)
{
    const char *init = json_string_value(json_object_get(peft, "init_lora_weights"));
    return init ? init : "";
}

/* B does not train. */
static int is_mica(const json_t *peft)
{
    return has_type(peft, "LORA") && strcasecmp(init_of(peft), "mica") == 0;
}

/* The last part of a parameter's name: "down_proj". */
static const char *leaf_of(const char *parameter)
{
    const char *dot = strrchr(parameter, '.');
    return dot != NULL ? dot + 1 : parameter;
}

/* Whether target_parameters has an entry with this last part. */
static int has_fused(const json_t *peft, const char *leaf)
{
    const json_t *list = json_object_get(peft, "target_parameters");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text != NULL && strcmp(leaf_of(text), leaf) == 0)
            return 1;
    }
    return 0;
}

/* Why a run cannot train the adapter further, by its keys. */
static const char *fixed_by_keys(const json_t *peft)
{
    if (is_mica(peft) && json_is_true(json_object_get(peft, "ensure_weight_tying")))
        return "init_lora_weights is \"mica\", with which B stays as it is in training, and with "
               "ensure_weight_tying Lathe would train it";
    if (has_fused(peft, "gate_up_proj"))
        return "target_parameters names gate_up_proj, of which PEFT trains one A for both halves, "
               "and Lathe would train two: one of gate_proj, and one of up_proj";
    if (!is_empty(json_object_get(peft, "velora_config")))
        return "velora_config is set, with which gradients are computed from compressed inputs";
    return NULL;
}

/* ---- checks ---- */

/* Whether a text is one of those of a list "a|b". */
static int is_one_of(const char *text, const char *list)
{
    const size_t n = text ? strlen(text) : 0;
    const char *bar;
    for (const char *at = list; n > 0 && at; at = bar ? bar + 1 : NULL) {
        if (strncmp(at, text, n) == 0 && (at[n] == '|' || at[n] == '\0'))
            return 1;
        bar = strchr(at, '|');
    }
    return 0;
}

static lathe_status refuse_key(const char *dir, const char *key, const json_t *value,
                               const key_row *row)
{
    enum { MAX_SHOWN = 60 };
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *shown = text ? text : "", *more = strlen(shown) > MAX_SHOWN ? "..." : "";
    const lathe_status status =
        row ? lathe_error(LATHE_E_CONFIG,
                          "%s/adapter_config.json: %s is %.*s%s: %s, which Lathe does not offer",
                          dir, key, MAX_SHOWN, shown, more, row->why)
            : lathe_error(LATHE_E_CONFIG,
                          "%s/adapter_config.json: the key %s is %.*s%s, and Lathe does not know "
                          "what the adapter computes with it; remove the key only if it says "
                          "nothing but how the adapter was trained",
                          dir, key, MAX_SHOWN, shown, more);
    free(text);
    return status;
}

static lathe_status check_keys(const char *dir, const json_t *peft, int32_t method)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)peft, key, value)
    {
        const key_row *row = find_row(method, key);
        if (row &&
            (row->kind != LATHE_PEFT_REFUSED || is_one_of(json_string_value(value), row->harmless)))
            continue;
        if (!is_empty(value))
            return refuse_key(dir, key, value, row);
    }
    return LATHE_OK;
}

/* The fused experts that target_parameters names, and what does not go with them. PEFT itself
 * refuses them with dropout, DoRA and biases. */
static lathe_status check_fused(const char *dir, const json_t *peft)
{
    static const char *const other[] = {"rank_pattern", "alpha_pattern"};
    const json_t *list = json_object_get(peft, "target_parameters");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        const char *leaf = text != NULL ? leaf_of(text) : "";
        if (text == NULL || strstr(text, "experts.") == NULL ||
            (strcmp(leaf, "gate_up_proj") != 0 && strcmp(leaf, "down_proj") != 0))
            return lathe_error(LATHE_E_CONFIG,
                               "%s/adapter_config.json: target_parameters names \"%s\"; expected "
                               "gate_up_proj and down_proj of experts, as "
                               "\"mlp.experts.down_proj\"",
                               dir, text != NULL ? text : "");
    }
    if (is_empty(list))
        return LATHE_OK;
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (!is_empty(json_object_get(peft, other[i])))
            return lathe_error(LATHE_E_CONFIG,
                               "%s/adapter_config.json: %s beside target_parameters is not "
                               "supported: the matrices of experts are divided by r alone",
                               dir, other[i]);
    if (json_is_string(json_object_get(peft, "target_modules")))
        return lathe_error(LATHE_E_CONFIG,
                           "%s/adapter_config.json: target_modules is a text beside "
                           "target_parameters; expected a list",
                           dir);
    return LATHE_OK;
}

/* PEFT changed the series in 0.18, the first version that writes its number. */
static lathe_status check_oft(const char *dir, const json_t *peft)
{
    if (json_is_false(json_object_get(peft, "use_cayley_neumann")))
        return lathe_error(LATHE_E_CONFIG,
                           "%s/adapter_config.json: use_cayley_neumann is false: the exact Cayley "
                           "transform is not supported, only the series",
                           dir);
    if (json_integer_value(json_object_get(peft, "r")) != 0)
        return lathe_error(LATHE_E_CONFIG,
                           "%s/adapter_config.json: r is %lld: a number of blocks is not "
                           "supported; expected 0, with oft_block_size",
                           dir, (long long)json_integer_value(json_object_get(peft, "r")));
    if (json_object_get(peft, "peft_version") == NULL)
        return lathe_error(LATHE_E_CONFIG,
                           "%s/adapter_config.json: no peft_version: PEFT before 0.18 wrote it, "
                           "whose rotations are another function of oft_R",
                           dir);
    return LATHE_OK;
}

/* Refuses an adapter whose initial values PEFT subtracts from the base's weights, on each load, and
 * names that PEFT does not have. The others only say what A and B began with, and the file has what
 * they are. PEFT looks at the case of some names, and not of others. */
static lathe_status check_init(const char *dir, const json_t *peft)
{
    static const char *const changing[] = {"pissa_niter", "corda", "olora", "loftq", "lora_ga"};
    static const char *const plain[] = {"gaussian", "mica"}, *const cased[] = {"eva", "orthogonal",
                                                                               "pissa"};
    const char *init = init_of(peft);
    for (size_t i = 0; i < sizeof changing / sizeof changing[0]; i++)
        if (strncasecmp(init, changing[i], strlen(changing[i])) == 0)
            return lathe_error(
                LATHE_E_CONFIG,
                "%s/adapter_config.json: init_lora_weights is \"%s\", with which the "
                "adapter belongs to another base than its model; convert it with "
                "PEFT's path_initial_model_for_weight_conversion",
                dir, init);
    int known = init[0] == '\0';
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        known |= strcasecmp(init, plain[i]) == 0;
    for (size_t i = 0; i < sizeof cased / sizeof cased[0]; i++)
        known |= strcmp(init, cased[i]) == 0;
    if (known)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s/adapter_config.json: init_lora_weights is \"%s\"; expected true, false, "
                       "\"gaussian\", \"eva\", \"orthogonal\", \"pissa\" or \"mica\"",
                       dir, init);
}

static lathe_status check(const char *dir, const json_t *peft)
{
    const char *type = json_string_value(json_object_get(peft, "peft_type"));
    const int is_lora = has_type(peft, "LORA");
    if (type == NULL)
        return lathe_error(LATHE_E_CONFIG,
                           "%s/adapter_config.json: no peft_type, so another program than PEFT "
                           "wrote it; expected the folder of PEFT's save_pretrained",
                           dir);
    if (!is_lora && !has_type(peft, "OFT"))
        return lathe_error(
            LATHE_E_CONFIG,
            "%s/adapter_config.json: peft_type is \"%s\"; expected \"LORA\" or \"OFT\"", dir, type);
    LATHE_TRY(check_keys(dir, peft, is_lora ? OF_LORA : OF_OFT));
    LATHE_TRY(check_fused(dir, peft));
    return is_lora ? check_init(dir, peft) : check_oft(dir, peft);
}

/* ---- settings ---- */

/* A key with the name of Lathe's setting. */
typedef struct same_key {
    const char *peft, *ours;
    json_int_t otherwise; /* PEFT's default where ours is another one, else 0 */
} same_key;

static const same_key lora_keys[] = {{"r", "r", 8},
                                     {"lora_alpha", "alpha", 8},
                                     {"lora_dropout", "dropout", 0},
                                     {"use_rslora", "use_rslora", 0},
                                     {"rank_pattern", "rank_pattern", 0},
                                     {"alpha_pattern", "alpha_pattern", 0},
                                     {"bias", "bias", 0},
                                     {"lora_bias", "lora_bias", 0},
                                     {"ensure_weight_tying", "ensure_weight_tying", 0},
                                     {NULL, NULL, 0}};
static const same_key oft_keys[] = {{"oft_block_size", "block_size", 0},
                                    {"num_cayley_neumann_terms", "num_cayley_neumann_terms", 0},
                                    {"bias", "bias", 0},
                                    {NULL, NULL, 0}};

/* Where the settings go. */
typedef struct target {
    const char *dir;
    const json_t *peft;
    lathe_arena *arena;
    lathe_setting_list *settings;
} target;

static lathe_status put(const target *t, const char *key, const json_t *value)
{
    return lathe_settings_add(t->settings, t->arena, "adapter", key, value);
}

/* Like put, and releases the value, which is NULL if memory ran out. */
static lathe_status put_new(const target *t, const char *key, json_t *value)
{
    const lathe_status status =
        value ? put(t, key, value)
              : lathe_error(LATHE_E_NOMEM, "no memory for the settings of %s", t->dir);
    json_decref(value);
    return status;
}

/* Adds a list, of which PEFT also takes a single entry. */
static lathe_status put_list(const target *t, const char *peft_key, const char *key)
{
    json_t *value = json_object_get(t->peft, peft_key);
    if (value == NULL || json_is_null(value))
        return LATHE_OK;
    return put_new(t, key, json_is_array(value) ? json_incref(value) : json_pack("[O]", value));
}

/* ---- modules that the file holds whole ---- */

#define PREFIX "base_model.model."
#define ROWS ".token_adapter.trainable_tokens_delta"

static int ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Whether PEFT saves the module because of modules_to_save: an entry is the end of its name or of
 * that of a module around it. */
static int is_saved(const json_t *list, const char *module)
{
    char around[512];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *entry = json_string_value(json_array_get(list, i));
        (void)snprintf(around, sizeof around, "%s", module);
        for (char *dot = around; entry && dot; dot = strrchr(around, '.')) {
            if (dot != around)
                *dot = '\0';
            if (ends_in(around, entry))
                return 1;
        }
    }
    return 0;
}

/* The module of a tensor that is a whole weight of the model; n: bytes of its name.
 * NULL: another tensor. */
static const char *whole_module(const char *key, size_t *out_n)
{
    static const char weight[] = ".weight";
    static const char *const parts[] = {".lora_", ".oft_", ".base_layer.", ".original_module."};
    const size_t skip = strlen(PREFIX), n = strlen(key);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strstr(key, parts[i]) != NULL)
            return NULL;
    const size_t end = ends_in(key, weight) ? sizeof weight - 1 : 0;
    if (end == 0 || n <= skip + end)
        return NULL;
    *out_n = n - skip - end;
    return key + skip;
}

/* Parameters that the file holds beside the adapter's own matrices. */
typedef struct whole_modules {
    json_t *more; /* names of modules that modules_to_save does not have */
    int n_rows;   /* modules of which it holds rows */
} whole_modules;

/* Finds the embedding and the head that PEFT saves because they were resized or by
 * save_embedding_layers, and reads into the base, and counts those of which it has rows. */
static lathe_status find_whole(const char *dir, const json_t *peft, whole_modules *out)
{
    lathe_adapter_tensors *tensors = NULL;
    const json_t *saved = json_object_get(peft, "modules_to_save");
    const int ties = json_is_true(json_object_get(peft, "ensure_weight_tying"));
    char name[512];
    *out = (whole_modules){.more = json_array()};
    if (out->more == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the settings of %s", dir);
    if (!lathe_folder_has(dir, "adapter_model.safetensors"))
        return LATHE_OK; /* the reader of the weights says it */
    LATHE_TRY(lathe_adapter_tensors_open(dir, &tensors));
    const char *key;
    for (int64_t i = 0; (key = lathe_adapter_tensors_key(tensors, i)) != NULL; i++) {
        size_t n = 0;
        out->n_rows += ends_in(key, ROWS);
        const char *module = whole_module(key, &n);
        if (module == NULL || n >= sizeof name)
            continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)n, module);
        if (is_saved(saved, name) || is_saved(out->more, name) ||
            (ties && is_saved(saved, "embed_tokens") && ends_in(name, "lm_head")))
            continue;
        (void)json_array_append_new(out->more, json_string(name));
    }
    lathe_adapter_tensors_close(tensors);
    return LATHE_OK;
}

/* Adds the rows of trainable_token_indices: a list for the embedding, or one for each module, which
 * must be the same. */
static lathe_status add_token_rows(const target *t, const whole_modules *whole)
{
    const json_t *indices = json_object_get(t->peft, "trainable_token_indices"), *list = indices;
    const char *module;
    json_t *one;
    int same = !is_empty(indices);
    if (!same && whole->n_rows == 0)
        return LATHE_OK;
    if (json_is_object(indices))
        list = json_object_iter_value(json_object_iter((json_t *)(uintptr_t)indices));
    json_object_foreach((json_t *)(uintptr_t)indices, module, one) same &= json_equal(one, list);
    if (same && json_array_size(list) > 0 && whole->n_rows > 0)
        return put(t, "trainable_token_rows", list);
    return lathe_error(LATHE_E_CONFIG,
                       "%s/adapter_config.json: trainable_token_indices and the tensors of "
                       "adapter_model.safetensors do not belong together; expected a list of "
                       "numbers of rows, the same for each module, and a tensor '" PREFIX
                       "MODULE" ROWS "'",
                       t->dir);
}

/* In a tied model the head is an embedding that the file holds without the head. */
static int is_tied_use(const whole_modules *whole)
{
    int embedding = 0, head = 0;
    for (size_t i = 0; i < json_array_size(whole->more); i++) {
        const char *name = json_string_value(json_array_get(whole->more, i));
        embedding |= ends_in(name, "embed_tokens");
        head |= ends_in(name, "lm_head");
    }
    return embedding && !head;
}

/* Adds the modules that are trained whole, except the heads of a classifier, which belong to the
 * stage: PEFT lists both names that they may have. */
static lathe_status add_saved(const target *t, const whole_modules *whole)
{
    const json_t *saved = json_object_get(t->peft, "modules_to_save");
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(saved); i++) {
        json_t *one = json_array_get(saved, i);
        const char *name = json_string_value(one);
        const int is_head = name && lathe_peft_is_classifier(t->peft) &&
                            (strcmp(name, "score") == 0 || strcmp(name, "classifier") == 0);
        if (!is_head)
            (void)json_array_append(list, one);
    }
    if (list)
        (void)json_array_extend(list, whole->more);
    if (list && json_array_size(list) == 0) {
        json_decref(list);
        return LATHE_OK;
    }
    return put_new(t, "modules_to_save", list);
}

/* Adds the projection of experts beside a parameter, whose name, or the end of it, is given. */
static void add_projection(json_t *list, const char *parameter, const char *projection)
{
    char text[512];
    (void)snprintf(text, sizeof text, "%.*s%s", (int)(leaf_of(parameter) - parameter), parameter,
                   projection);
    (void)json_array_append_new(list, json_string(text));
}

/* The modules of the list and the projections of the fused experts. */
static lathe_status add_with_fused(const target *t, const json_t *targets)
{
    const json_t *fused = json_object_get(t->peft, "target_parameters");
    json_t *list = json_is_array(targets) ? json_copy((json_t *)(uintptr_t)targets) : json_array();
    for (size_t i = 0; list != NULL && i < json_array_size(fused); i++) {
        const char *name = json_string_value(json_array_get(fused, i));
        if (strcmp(leaf_of(name), "down_proj") == 0) {
            add_projection(list, name, "down_proj");
            continue;
        }
        add_projection(list, name, "gate_proj");
        add_projection(list, name, "up_proj");
    }
    return put_new(t, "target_modules", list);
}

static lathe_status add_targets(const target *t)
{
    json_t *targets = json_object_get(t->peft, "target_modules");
    json_t *excluded = json_object_get(t->peft, "exclude_modules");
    const char *text = json_string_value(targets);
    if (!is_empty(excluded))
        LATHE_TRY(
            put(t, json_is_string(excluded) ? "exclude_pattern" : "exclude_modules", excluded));
    LATHE_TRY(put_list(t, "layers_to_transform", "layers_to_transform"));
    if (!is_empty(json_object_get(t->peft, "layers_pattern")))
        LATHE_TRY(put_list(t, "layers_pattern", "layers_pattern"));
    if (!is_empty(json_object_get(t->peft, "target_parameters")))
        return add_with_fused(t, targets);
    if (text && strcmp(text, "all-linear") != 0)
        return put(t, "target_pattern", targets);
    return text ? put_new(t, "target_modules", json_pack("[s]", text))
                : put(t, "target_modules", targets);
}

static lathe_status add_name(const target *t)
{
    const int use_dora = json_is_true(json_object_get(t->peft, "use_dora"));
    return put_new(t, "name",
                   json_string(has_type(t->peft, "OFT") ? "oft"
                               : use_dora               ? "dora"
                                                        : "lora"));
}

/* A text that names the modules. */
static lathe_status say_whole(const json_t *names, lathe_arena *arena, const char **out)
{
    const char *list = "";
    for (size_t i = 0; list && i < json_array_size(names); i++)
        list = lathe_arena_printf(arena, "%s%s%s", list, i > 0 ? ", " : "",
                                  json_string_value(json_array_get(names, i)));
    *out = list ? lathe_arena_printf(arena,
                                     "adapter_model.safetensors has the whole weight of %s, which "
                                     "modules_to_save does not name: PEFT reads it into the base "
                                     "and does not train it",
                                     list)
                : NULL;
    return *out ? LATHE_OK : LATHE_E_NOMEM;
}

static lathe_status add_all(const target *t, const whole_modules *whole)
{
    const json_t *peft = t->peft;
    LATHE_TRY(add_name(t));
    if (has_type(peft, "LORA") && is_tied_use(whole))
        LATHE_TRY(put_new(t, "ensure_weight_tying", json_true()));
    LATHE_TRY(put_new(t, "strict", json_false()));
    /* The residual of PiSSA follows from the base alone, so it is computed again; A and B are
     * read. */
    if (has_type(peft, "LORA") && strcmp(init_of(peft), "pissa") == 0)
        LATHE_TRY(put(t, "init", json_object_get(peft, "init_lora_weights")));
    if (is_mica(peft) && !json_is_true(json_object_get(peft, "ensure_weight_tying")))
        LATHE_TRY(put_new(t, "init", json_string("mica")));
    for (const same_key *k = has_type(peft, "OFT") ? oft_keys : lora_keys; k->peft; k++) {
        const json_t *value = json_object_get(peft, k->peft);
        if (!is_empty(value))
            LATHE_TRY(put(t, k->ours, value));
        else if (k->otherwise)
            LATHE_TRY(put_new(t, k->ours, json_integer(k->otherwise)));
    }
    LATHE_TRY(add_saved(t, whole));
    LATHE_TRY(add_token_rows(t, whole));
    return add_targets(t);
}

lathe_status lathe_peft_config_settings(const char *dir, const json_t *peft, lathe_arena *arena,
                                        lathe_setting_list *settings, const char **out_fixed)
{
    const target t = {dir, peft, arena, settings};
    whole_modules whole;
    LATHE_TRY(check(dir, peft));
    lathe_status status = find_whole(dir, peft, &whole);
    *out_fixed = fixed_by_keys(peft);
    if (status == LATHE_OK && *out_fixed == NULL && json_array_size(whole.more) > 0)
        status = say_whole(whole.more, arena, out_fixed);
    if (status == LATHE_OK)
        status = add_all(&t, &whole);
    json_decref(whole.more);
    return status;
}

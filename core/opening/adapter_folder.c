/* Reads the settings of an adapter's folder. */
#include "opening/adapter_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/model_path.h"
#include "checkpoint/checkpoint_folder.h"

int32_t lathe_adapter_folder_is(const char *dir)
{
    return lathe_folder_has(dir, "adapter_model.safetensors") ||
           lathe_folder_has(dir, "adapter_config.json");
}

static lathe_status add_run(lathe_adapter_folder *f, lathe_arena *arena, const json_t *config,
                            int whole_model)
{
    const json_t *quant = json_object_get(json_object_get(config, "quant"), "name");
    const char *name = json_string_value(quant);
    LATHE_TRY(lathe_settings_add_section(&f->settings, arena, config, "adapter"));
    if (name && strcmp(name, "none") != 0)
        LATHE_TRY(lathe_settings_add_section(&f->settings, arena, config, "quant"));
    if (!whole_model && !json_object_get(json_object_get(config, "model"), "path"))
        LATHE_TRY(lathe_settings_add_section(&f->settings, arena, config, "model"));
    return lathe_settings_add_precision(&f->settings, arena, config);
}

/* ---- from adapter_config.json ---- */

static lathe_status read_peft(const char *dir, lathe_arena *arena, json_t **out)
{
    const char *path = lathe_path_join(arena, dir, "adapter_config.json");
    *out = NULL;
    if (!path)
        return LATHE_E_NOMEM;
    return lathe_path_exists(path) ? lathe_json_load_file(path, out) : LATHE_OK;
}

static int is_empty(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static int is_classifier(const json_t *peft)
{
    const char *task = json_string_value(json_object_get(peft, "task_type"));
    return task && strcmp(task, "SEQ_CLS") == 0;
}

lathe_status lathe_adapter_folder_find(const char *path, lathe_arena *arena, const char **out)
{
    const char *found = path;
    *out = NULL;
    if (!lathe_path_is_dir(path))
        return LATHE_OK;
    if (!lathe_adapter_folder_is(path)) {
        if (lathe_folder_has(path, "config.json"))
            return LATHE_OK;
        LATHE_TRY(lathe_checkpoint_resolve(arena, path, &found));
    }
    *out = lathe_adapter_folder_is(found) ? found : NULL;
    return LATHE_OK;
}

lathe_status lathe_adapter_folder_is_classifier(const char *dir, int32_t *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    json_t *peft = NULL;
    const lathe_status status = read_peft(dir, &arena, &peft);
    *out = is_classifier(peft);
    json_decref(peft);
    lathe_arena_fini(&arena);
    return status;
}

/* Whether it is the adapter of a reward model: its score is among the whole modules. */
static int is_reward(const json_t *peft)
{
    const json_t *saved = json_object_get(peft, "modules_to_save");
    for (size_t i = 0; is_classifier(peft) && i < json_array_size(saved); i++) {
        const char *name = json_string_value(json_array_get(saved, i));
        if (name && strcmp(name, "score") == 0)
            return 1;
    }
    return 0;
}

/* Adds the modules that are trained whole, except the heads of a classifier, which belong to the
 * stage: PEFT lists both names that they may have. */
static lathe_status add_saved(lathe_adapter_folder *f, lathe_arena *arena, const json_t *peft)
{
    const json_t *saved = json_object_get(peft, "modules_to_save");
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(saved); i++) {
        json_t *one = json_array_get(saved, i);
        const char *name = json_string_value(one);
        const int is_head = name && is_classifier(peft) &&
                            (strcmp(name, "score") == 0 || strcmp(name, "classifier") == 0);
        if (!is_head)
            (void)json_array_append(list, one);
    }
    const lathe_status status =
        !list ? lathe_error(LATHE_E_NOMEM, "no memory for modules_to_save")
        : json_array_size(list) == 0
            ? LATHE_OK
            : lathe_settings_add(&f->settings, arena, "adapter", "modules_to_save", list);
    json_decref(list);
    return status;
}

/* The stage that reads the score of a reward model: the run's, or rm. */
static lathe_status add_stage(lathe_adapter_folder *f, lathe_arena *arena, const json_t *config,
                              const json_t *peft)
{
    const char *own = json_string_value(json_object_get(json_object_get(config, "stage"), "name"));
    json_t *name = is_reward(peft) ? json_string(own ? own : "rm") : NULL;
    const lathe_status status = lathe_settings_add(&f->settings, arena, "stage", "name", name);
    json_decref(name);
    return status;
}

/* The methods whose files are read: peft_type, and the keys with the names of Lathe's settings. */
typedef struct peft_key {
    const char *peft, *ours;
    json_int_t otherwise; /* PEFT's default where ours is another one, else 0 */
} peft_key;

static const peft_key lora_keys[] = {{"r", "r", 8},
                                     {"lora_alpha", "alpha", 8},
                                     {"use_rslora", "use_rslora", 0},
                                     {"rank_pattern", "rank_pattern", 0},
                                     {"alpha_pattern", "alpha_pattern", 0},
                                     {"bias", "bias", 0},
                                     {"ensure_weight_tying", "ensure_weight_tying", 0},
                                     {NULL, NULL, 0}};
static const peft_key oft_keys[] = {{"oft_block_size", "block_size", 0},
                                    {"num_cayley_neumann_terms", "num_cayley_neumann_terms", 0},
                                    {"bias", "bias", 0},
                                    {NULL, NULL, 0}};

static int has_type(const json_t *peft, const char *type)
{
    const char *found = json_string_value(json_object_get(peft, "peft_type"));
    return found && strcmp(found, type) == 0;
}

/* Refuses settings with which the model would differ from Lathe's methods. */
static lathe_status check_peft(const char *dir, const json_t *peft)
{
    static const char *const others[] = {"layers_to_transform", "layer_replication",
                                         "target_parameters", "coft", "block_share"};
    const char *type = json_string_value(json_object_get(peft, "peft_type"));
    if (!has_type(peft, "LORA") && !has_type(peft, "OFT"))
        return lathe_error(
            LATHE_E_CONFIG,
            "%s/adapter_config.json: peft_type is \"%s\"; expected \"LORA\" or \"OFT\"", dir,
            type ? type : "");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (!is_empty(json_object_get(peft, others[i])))
            return lathe_error(LATHE_E_CONFIG, "%s/adapter_config.json: %s is not supported", dir,
                               others[i]);
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
    if (!json_object_get(peft, "peft_version"))
        return lathe_error(LATHE_E_CONFIG,
                           "%s/adapter_config.json: no peft_version: PEFT before 0.18 wrote it, "
                           "whose rotations are another function of oft_R",
                           dir);
    return LATHE_OK;
}

/* Refuses an adapter whose initial values PEFT subtracts from the base's weights, on each load. */
static lathe_status check_lora(const char *dir, const json_t *peft)
{
    static const char *const changing[] = {"pissa_niter", "corda", "olora", "loftq", "lora_ga"};
    const char *init = json_string_value(json_object_get(peft, "init_lora_weights"));
    for (size_t i = 0; init && i < sizeof changing / sizeof changing[0]; i++)
        if (strncasecmp(init, changing[i], strlen(changing[i])) == 0)
            return lathe_error(
                LATHE_E_CONFIG,
                "%s/adapter_config.json: init_lora_weights is \"%s\", with which the "
                "adapter belongs to another base than its model; convert it with "
                "PEFT's path_initial_model_for_weight_conversion",
                dir, init);
    return LATHE_OK;
}

/* The residual of PiSSA follows from the base alone, so it is computed again; A and B are read. */
static lathe_status add_init(lathe_adapter_folder *f, lathe_arena *arena, const json_t *peft)
{
    json_t *init = json_object_get(peft, "init_lora_weights");
    const char *text = json_string_value(init);
    if (!text || strcmp(text, "pissa") != 0)
        return LATHE_OK;
    return lathe_settings_add(&f->settings, arena, "adapter", "init", init);
}

static lathe_status add_targets(lathe_adapter_folder *f, lathe_arena *arena, const char *dir,
                                const json_t *peft)
{
    json_t *targets = json_object_get(peft, "target_modules");
    json_t *excluded = json_object_get(peft, "exclude_modules");
    const char *text = json_string_value(targets);
    if (json_is_string(excluded))
        return lathe_error(
            LATHE_E_CONFIG,
            "%s/adapter_config.json: exclude_modules is the pattern \"%s\"; expected "
            "a list of names",
            dir, json_string_value(excluded));
    if (!is_empty(excluded))
        LATHE_TRY(lathe_settings_add(&f->settings, arena, "adapter", "exclude_modules", excluded));
    if (text && strcmp(text, "all-linear") != 0)
        return lathe_settings_add(&f->settings, arena, "adapter", "target_pattern", targets);
    json_t *list = text ? json_pack("[s]", text) : json_incref(targets);
    const lathe_status status =
        lathe_settings_add(&f->settings, arena, "adapter", "target_modules", list);
    json_decref(list);
    return status;
}

static lathe_status add_peft(lathe_adapter_folder *f, lathe_arena *arena, const char *dir,
                             const json_t *peft)
{
    const int oft = has_type(peft, "OFT");
    const char *method = json_is_true(json_object_get(peft, "use_dora")) ? "dora" : "lora";
    LATHE_TRY(check_peft(dir, peft));
    LATHE_TRY(oft ? check_oft(dir, peft) : check_lora(dir, peft));
    if (!oft)
        LATHE_TRY(add_init(f, arena, peft));
    json_t *name = json_string(oft ? "oft" : method);
    lathe_status status = lathe_settings_add(&f->settings, arena, "adapter", "name", name);
    json_decref(name);
    for (const peft_key *k = oft ? oft_keys : lora_keys; k->peft && status == LATHE_OK; k++) {
        const json_t *value = json_object_get(peft, k->peft);
        json_t *otherwise = k->otherwise ? json_integer(k->otherwise) : NULL;
        status = lathe_settings_add(&f->settings, arena, "adapter", k->ours,
                                    is_empty(value) ? otherwise : value);
        json_decref(otherwise);
    }
    if (status == LATHE_OK)
        status = add_saved(f, arena, peft);
    return status == LATHE_OK ? add_targets(f, arena, dir, peft) : status;
}

/* ---- the model ---- */

/* Finds the model: the folder itself if it contains the whole model, else the user's, else the one
 * that the adapter names. */
static lathe_status find_base(lathe_adapter_folder *f, lathe_arena *arena, const char *dir,
                              const char *given, const json_t *config, const json_t *peft)
{
    const char *of_peft = json_string_value(json_object_get(peft, "base_model_name_or_path"));
    const char *of_run =
        json_string_value(json_object_get(json_object_get(config, "model"), "path"));
    const char *named = of_peft && of_peft[0] ? of_peft : of_run;
    if (given || lathe_folder_has(dir, "config.json")) {
        f->base = given ? given : dir;
        return LATHE_OK;
    }
    if (named && !lathe_path_is_model(named) && of_run && lathe_path_is_model(of_run))
        named = of_run;
    if (!named || !lathe_path_is_model(named))
        return lathe_error(LATHE_E_CONFIG,
                           "%s holds an adapter of the model %s, which does not exist: name the "
                           "model's folder with --model.path",
                           dir, named ? named : "(not named)");
    f->base = lathe_arena_strdup(arena, named);
    return f->base ? LATHE_OK : LATHE_E_NOMEM;
}

static lathe_status read_settings(lathe_adapter_folder *f, lathe_arena *arena, const char *dir,
                                  const char *base, const json_t *config, const json_t *peft)
{
    LATHE_TRY(find_base(f, arena, dir, base, config, peft));
    LATHE_TRY(add_stage(f, arena, config, peft));
    if (config)
        return add_run(f, arena, config, strcmp(f->base, dir) == 0);
    if (peft)
        return add_peft(f, arena, dir, peft);
    return lathe_error(LATHE_E_CONFIG,
                       "%s holds an adapter, but neither manifest.json nor adapter_config.json has "
                       "its settings: name the run file that trained it instead",
                       dir);
}

lathe_status lathe_adapter_folder_read(const char *dir, const char *base, lathe_arena *arena,
                                       lathe_adapter_folder *out)
{
    json_t *config = NULL, *peft = NULL;
    *out = (lathe_adapter_folder){.base = NULL};
    lathe_status status = lathe_settings_init(&out->settings, arena);
    if (status == LATHE_OK)
        status = lathe_folder_config(dir, arena, &config, &out->has_manifest);
    if (status == LATHE_OK)
        status = read_peft(dir, arena, &peft);
    if (status == LATHE_OK)
        status = read_settings(out, arena, dir, base, config, peft);
    json_decref(config);
    json_decref(peft);
    return status;
}

/* Opens a run for the model that a command names. */
#include "app/model_dir.h"

#include <string.h>

#include "app/adapter_options.h"
#include "app/eval_data.h"
#include "app/held_log.h"
#include "app/idle_overrides.h"
#include "app/model_word.h"
#include "app/saved_renderer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/model_path.h"
#include "checkpoint/adapter_file.h"
#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "gguf/model_files.h"
#include "opening/adapter_folder.h"
#include "opening/named_open.h"
#include "opening/opening.h"
#include "opening/other_adapter.h"
#include "opening/read_check.h"
#include "primitives/save_load.h"
#include "run/run_saved.h"

#define MAX_SETTINGS 24

/* Longest context of a model's folder, unless data.seq_len sets another. */
#define MOST_POSITIONS 4096

/* Whether the command line gives the key a value; an empty one takes the key out. */
static int is_set(const lathe_args *args, const char *key)
{
    const char *value = lathe_args_override(args, key);
    return value && value[0];
}

/* Reads from the model's folder the row length (the longest that the model supports, and at most a
 * usual maximum), and the number of labels if it is a sequence classifier, else 0. The overrides
 * may name folders of plugins and the plugin of the model's family. */
static lathe_status read_folder(const char *path, const lathe_override *overrides, int32_t n,
                                int64_t *out_length, int32_t *out_labels)
{
    lathe_model_config model = {0};
    lathe_model_source source = {NULL, NULL};
    lathe_config *config = NULL;
    lathe_diags diags = {0};
    lathe_status status = lathe_registry_create(&source.registry);
    if (status == LATHE_OK)
        status = lathe_config_load(NULL, overrides, n, 0, source.registry, &diags, &config);
    if (status == LATHE_OK) {
        source.family = lathe_config_part(config, LATHE_KIND_MODEL)->component;
        status = lathe_model_config_load(&source, path, &model);
    }
    if (status == LATHE_OK) {
        *out_length = model.max_positions < MOST_POSITIONS ? model.max_positions : MOST_POSITIONS;
        *out_labels = model.n_labels;
    }
    lathe_model_config_fini(&model);
    lathe_config_destroy(config);
    lathe_diags_fini(&diags);
    lathe_registry_destroy(source.registry);
    return status;
}

/* Makes the overrides of the command: its own settings, then the user's, with room for n_more.
 * NULL: out of memory. */
static lathe_override *overrides(const lathe_args *args, const char *const *settings,
                                 int32_t n_more, lathe_arena *arena, int32_t *out_n)
{
    lathe_override *list = lathe_arena_alloc(arena, (MAX_SETTINGS + n_more + args->n_overrides) *
                                                        (int64_t)sizeof *list);
    int32_t n = 0;
    for (int32_t i = 0; list && settings && settings[i] && n < MAX_SETTINGS - 2; i += 2)
        if (settings[i + 1] && !is_set(args, settings[i]))
            list[n++] = (lathe_override){settings[i], settings[i + 1]};
    for (int32_t i = 0; list && i < args->n_overrides; i++)
        list[n++] = args->overrides[i];
    *out_n = n;
    return list;
}

static lathe_status check_folder(const char *path)
{
    char hint[LATHE_HUB_HINT];
    if (!lathe_model_has(path, "config.json"))
        return lathe_error(LATHE_E_CONFIG, "%s: has no config.json, so it is not a model folder%s",
                           path, lathe_adapters_hint(path, hint));
    return LATHE_OK;
}

static lathe_status refuse_reference(const lathe_args *args, const lathe_run *run)
{
    if (!run->params.has_reference)
        return LATHE_OK;
    return lathe_error(
        LATHE_E_CONFIG,
        "%s: stage \"%s\" compares the model with the one before training, which the "
        "folder does not name, or which is not there: name the run file instead of the "
        "folder",
        args->words[0], run->parts.stage.component->plugin->name);
}

/* A score of random weights says nothing about the folder. */
static lathe_status refuse_new_score(const lathe_args *args, const lathe_run *run)
{
    const int32_t row = lathe_params_find(&run->params, "score.weight");
    if (row < 0 || run->params.rows[row]->stage_head != LATHE_HEAD_NEW)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s: stage \"%s\" reads a reward model, and the folder has no score.weight: "
                       "name the folder of a reward model, or another stage",
                       args->words[0], run->parts.stage.component->plugin->name);
}

/* ---- what a folder's own manifest says ---- */

/* Whether lathe eval got no data, so that it takes those of the folder's run. */
static int lacks_data(const lathe_args *args)
{
    return args->command->evaluates && !lathe_args_value(args, "--data") &&
           !is_set(args, "data.validation");
}

/* Adds what the run evaluated with, unless the user says otherwise. config: NULL: of no run. */
static lathe_status add_of_run(const lathe_args *args, const char *path, const json_t *config,
                               lathe_arena *arena, lathe_setting_list *settings)
{
    if (config)
        LATHE_TRY(
            lathe_settings_add_evaluation(settings, arena, config, is_set(args, "stage.name")));
    return lacks_data(args) ? lathe_settings_add_validation(settings, arena, path) : LATHE_OK;
}

/* Adds what the run of the folder evaluated with, unless the user says otherwise, and says so. */
static lathe_status add_evaluation(const lathe_args *args, const char *path, lathe_arena *arena,
                                   lathe_setting_list *settings)
{
    json_t *config = NULL;
    int32_t has_manifest;
    LATHE_TRY(lathe_folder_config(path, arena, &config, &has_manifest));
    const char *stage =
        json_string_value(json_object_get(json_object_get(config, "stage"), "name"));
    const lathe_status status = add_of_run(args, path, config, arena, settings);
    if (status == LATHE_OK && stage && is_set(args, "stage.name"))
        lathe_log(
            LATHE_LOG_INFO,
            "evaluates by stage %s, with the length of rows and micro-batch with which %s was "
            "trained",
            lathe_args_override(args, "stage.name"), path);
    else if (status == LATHE_OK && stage)
        lathe_log(LATHE_LOG_INFO,
                  "evaluates as %s was trained: stage %s with its settings, and the length of rows "
                  "and micro-batch%s of its run (--stage.name and the like change it)",
                  path, stage, lacks_data(args) ? ", on the validation data" : "");
    json_decref(config);
    return status;
}

/* Appends the settings that the user does not override. */
static void append(const lathe_args *args, const lathe_setting_list *settings, lathe_override *list,
                   int32_t *n)
{
    for (int32_t i = 0; i < settings->n; i++)
        if (!is_set(args, settings->list[i].key))
            list[(*n)++] = settings->list[i];
}

/* Appends data.seq_len for the model in `folder`, and stage rm if it is a reward model, unless the
 * user or the settings have them. */
static lathe_status append_of_model(const lathe_args *args, const lathe_setting_list *settings,
                                    const char *folder, lathe_arena *arena, lathe_override *list,
                                    int32_t *n)
{
    int64_t length = 0;
    int32_t n_labels = 0;
    LATHE_TRY(read_folder(folder, list, *n, &length, &n_labels));
    if (n_labels == 1 && !is_set(args, "stage.name") &&
        !lathe_settings_have(settings, "stage.name"))
        list[(*n)++] = (lathe_override){"stage.name", "rm"};
    const char *rows = lathe_arena_printf(arena, "%lld", (long long)length);
    if (!rows)
        return LATHE_E_NOMEM;
    if (!is_set(args, "data.seq_len") && !lathe_settings_have(settings, "data.seq_len"))
        list[(*n)++] = (lathe_override){"data.seq_len", rows};
    return LATHE_OK;
}

/* Appends the tokenizer with which the folder was trained, if it says which, and the chat template
 * of raw bytes. */
static lathe_status append_tokenizer(const lathe_args *args, const char *path, lathe_arena *arena,
                                     lathe_override *list, int32_t *n)
{
    const char *tokenizer = NULL;
    if (!is_set(args, "tokenizer.path"))
        LATHE_TRY(lathe_folder_tokenizer(path, arena, &tokenizer));
    if (tokenizer)
        list[(*n)++] = (lathe_override){"tokenizer.path", tokenizer};
    const char *chat = NULL;
    if (!is_set(args, "tokenizer.path") && !is_set(args, "data.chat_template"))
        LATHE_TRY(lathe_folder_bytes_template(path, arena, &chat));
    if (chat)
        list[(*n)++] = (lathe_override){"data.chat_template", chat};
    return LATHE_OK;
}

/* The folder of model.path means itself: the choice was made, or the adapter names it. */
static const lathe_override exactly = {"model.weights", "training"};

/* ---- an adapter's folder ---- */

/* Makes the overrides: settings of the command and of the adapter, the base, and the tokenizer. */
static lathe_status adapter_overrides(const lathe_args *args, const char *const *settings,
                                      const char *path, const lathe_adapter_folder *folder,
                                      int32_t which, lathe_arena *arena, lathe_override **out,
                                      int32_t *out_n)
{
    lathe_override *list = overrides(args, settings, folder->settings.n + 3, arena, out_n);
    if (!list)
        return LATHE_E_NOMEM;
    append(args, &folder->settings, list, out_n);
    LATHE_TRY(append_of_model(args, &folder->settings, folder->base, arena, list, out_n));
    if (!is_set(args, "model.path"))
        list[(*out_n)++] = (lathe_override){"model.path", folder->base};
    if (!is_set(args, "model.path") || which == LATHE_WEIGHTS_TRAINING)
        list[(*out_n)++] = exactly;
    *out = list;
    return append_tokenizer(args, path, arena, list, out_n);
}

/* Loads the weights of a checkpoint: verifies it, and takes the average instead of the training
 * weights if that is chosen. An adapter's folder may lack a manifest. */
static lathe_status load_weights(const lathe_model_folder *folder, int32_t has_manifest,
                                 lathe_run *run)
{
    const char *checkpoint = NULL;
    int32_t averaged = 0;
    lathe_cli_say_weights(folder);
    if (!has_manifest)
        return lathe__adapter_file_take(lathe__run_saved(run), folder->weights);
    run->set.checkpoint.resume = folder->dir;
    run->checkpoints.reads_rounded = 1; /* as of a folder without an adapter, and as lathe merge */
    LATHE_TRY(lathe__run_resume(run, &checkpoint));
    return folder->is_average
               ? lathe_checkpoint_take_average(lathe__run_saved(run), folder->dir, &averaged)
               : LATHE_OK;
}

/* Compares the base of an adapter with the one that it was trained over. Another one is refused,
 * unless the user names it. */
static lathe_status check_base_of(const char *dir, const char *given, const char *base,
                                  lathe_arena *arena)
{
    const char *difference = NULL;
    if (!given)
        return lathe_adapter_base_check(dir, base);
    LATHE_TRY(lathe_adapter_folder_refuse_merged(dir, given));
    LATHE_TRY(lathe__adapter_base_difference(dir, given, arena, &difference));
    if (difference)
        lathe_log(LATHE_LOG_WARN, "%s", difference);
    return LATHE_OK;
}

/* The folder of the weights that --model.path means for an adapter; NULL: it is not given. */
static lathe_status find_given(const lathe_args *args, int32_t which, lathe_arena *arena,
                               const char **out)
{
    const char *path = lathe_args_override(args, "model.path");
    lathe_model_folder folder;
    *out = path && path[0] ? path : NULL;
    if (!*out || !lathe_path_is_model(path))
        return LATHE_OK; /* that it is not there is told at its key */
    LATHE_TRY(lathe_model_folder_find(
        path, which == LATHE_WEIGHTS_TRAINING ? which : LATHE_WEIGHTS_AUTO, arena, &folder));
    *out = folder.weights;
    return LATHE_OK;
}

static lathe_status open_adapter(const lathe_args *args, int32_t mode, const char *const *settings,
                                 const lathe_model_folder *found, int32_t which, lathe_arena *arena,
                                 lathe_run **out)
{
    lathe_adapter_folder folder;
    lathe_override *list = NULL;
    const char *given = NULL, *const path = found->dir;
    int32_t n = 0;
    LATHE_TRY(lathe_model_folder_check(found));
    LATHE_TRY(find_given(args, which, arena, &given));
    LATHE_TRY(lathe_adapter_folder_read(path, given, arena, &folder));
    LATHE_TRY(check_base_of(path, given, folder.base, arena));
    if (mode == LATHE_OPEN_EVALUATE)
        LATHE_TRY(add_evaluation(args, path, arena, &folder.settings));
    if (mode != LATHE_OPEN_WEIGHTS)
        LATHE_TRY(lathe_app_use_saved_renderer(args, path, folder.base, arena, &folder.settings));
    LATHE_TRY(adapter_overrides(args, settings, path, &folder, which, arena, &list, &n));
    LATHE_TRY(lathe_run_open_mode(NULL, list, n, mode, out));
    if (strcmp(folder.base, path) == 0) /* otherwise the base is the model before training */
        LATHE_TRY(refuse_reference(args, *out));
    return load_weights(found, folder.has_manifest, *out);
}

/* ---- a model's folder, a run file ---- */

/* Refuses a model before training that is not the one with which the run began. */
static lathe_status check_reference(const char *path, const char *base, lathe_arena *arena)
{
    lathe_base_difference d;
    LATHE_TRY(lathe_adapter_base_compare(path, base, arena, &d));
    if (!d.detail)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s is compared with the model before its training, %s, which has other "
                       "weights now: %s; restore it, or evaluate by a stage without a reference "
                       "(--stage.name)",
                       path, base, d.detail);
}

/* Opens the run of a checkpoint again as it began, and loads the checkpoint: for a stage that
 * compares the model with the one before training. *out is replaced. */
static lathe_status reopen_with_reference(const lathe_args *args, int32_t mode,
                                          const char *const *settings,
                                          const lathe_model_folder *folder, lathe_arena *arena,
                                          lathe_run **out)
{
    json_t *config = NULL;
    int32_t has_manifest, n = 0;
    lathe_setting_list more;
    const char *const path = folder->dir;
    LATHE_TRY(lathe_folder_config(path, arena, &config, &has_manifest));
    const char *named =
        json_string_value(json_object_get(json_object_get(config, "model"), "path"));
    const char *base = named ? lathe_arena_strdup(arena, named) : NULL;
    lathe_status status = lathe_settings_init(&more, arena);
    if (status == LATHE_OK && config && !named)
        status = lathe_settings_add_section(&more, arena, config, "model");
    if (status == LATHE_OK && config && !lathe_folder_has(path, "tokenizer.json"))
        status = lathe_settings_add_section(&more, arena, config, "tokenizer");
    if (status == LATHE_OK && config)
        status = add_of_run(args, path, config, arena, &more);
    json_decref(config);
    LATHE_TRY(status);
    if (more.n == 0 || (named && !lathe_path_is_model(base)))
        return refuse_reference(args, *out);
    if (base)
        LATHE_TRY(check_reference(path, base, arena));
    LATHE_TRY(lathe_app_use_saved_renderer(args, path, NULL, arena, &more));
    lathe_run_close(*out);
    *out = NULL;
    lathe_override *list = overrides(args, settings, more.n + 3, arena, &n);
    if (!list)
        return LATHE_E_NOMEM;
    append(args, &more, list, &n);
    if (base) {
        list[n++] = (lathe_override){"model.path", base};
        list[n++] = exactly;
    }
    LATHE_TRY(append_tokenizer(args, path, arena, list, &n));
    LATHE_TRY(lathe_run_open_mode(NULL, list, n, mode, out));
    return load_weights(folder, 1, *out);
}

static int has_key(const lathe_override *list, int32_t n, const char *key)
{
    for (int32_t i = 0; i < n; i++)
        if (strcmp(list[i].key, key) == 0)
            return 1;
    return 0;
}

/* Opens a model's folder, and opens it again if its stage compares it with the model before
 * training. What the first opening says is then dropped, because the second says it too. */
static lathe_status open_to_evaluate(const lathe_args *args, const char *const *settings,
                                     const lathe_model_folder *folder, const lathe_override *list,
                                     int32_t n, lathe_arena *arena, lathe_run **out)
{
    lathe_held_log said;
    lathe_cli_say_weights(folder); /* once in a process: what is held may be dropped */
    lathe_held_log_begin(&said);
    if (!has_key(list, n, "stage.name"))
        lathe_eval_say_stage(args, folder->dir);
    lathe_status status = lathe_run_open_mode(NULL, list, n, LATHE_OPEN_EVALUATE, out);
    const int reopens = status == LATHE_OK && (*out)->params.has_reference;
    lathe_held_log_end(&said, !reopens);
    LATHE_TRY(status);
    LATHE_TRY(refuse_new_score(args, *out));
    return reopens ? reopen_with_reference(args, LATHE_OPEN_EVALUATE, settings, folder, arena, out)
                   : LATHE_OK;
}

/* Makes the overrides of a model's folder: settings of the command and of the folder, the model in
 * it, and tokenizer.path (NULL: none). */
static lathe_status model_overrides(const lathe_args *args, const char *const *settings,
                                    const char *tokenizer, const char *model,
                                    const lathe_setting_list *own, lathe_arena *arena,
                                    lathe_override **out, int32_t *out_n)
{
    lathe_override *list = overrides(args, settings, own->n + 2, arena, out_n);
    if (!list)
        return LATHE_E_NOMEM;
    append(args, own, list, out_n);
    LATHE_TRY(append_of_model(args, own, model, arena, list, out_n));
    list[(*out_n)++] = (lathe_override){"model.path", model};
    list[(*out_n)++] = exactly;
    if (tokenizer && !is_set(args, "tokenizer.path"))
        list[(*out_n)++] = (lathe_override){"tokenizer.path", tokenizer};
    *out = list;
    return LATHE_OK;
}

/* Opens a model's folder with the adapters of the command line. */
static lathe_status open_named(const lathe_args *args, const char *const *settings,
                               const char *path, const char *model, lathe_setting_list *own,
                               lathe_arena *arena, lathe_run **out)
{
    lathe_named_adapters *named = NULL;
    lathe_override *list = NULL;
    const char *tokenizer = NULL;
    int32_t n = 0;
    LATHE_TRY(lathe_app_read_adapters(args, path, arena, own, &tokenizer, &named));
    const lathe_status status =
        model_overrides(args, settings, tokenizer, model, own, arena, &list, &n);
    if (status != LATHE_OK) {
        lathe__named_adapters_destroy(named);
        return status;
    }
    return lathe_run_open_named(list, n, named, out);
}

static lathe_status open_folder(const lathe_args *args, int32_t mode, const char *const *settings,
                                lathe_arena *arena, lathe_run **out)
{
    const char *tokenizer = NULL;
    int32_t n = 0, weights, has_adapters;
    lathe_override *list = NULL;
    lathe_setting_list own;
    lathe_model_folder folder;
    LATHE_TRY(lathe_cli_weights(args, &weights));
    LATHE_TRY(lathe_cli_find_model(args->words[0], weights, arena, &folder));
    LATHE_TRY(lathe_app_has_adapters(args, &has_adapters));
    if (folder.has_adapter && has_adapters)
        return lathe_error(LATHE_E_ARG,
                           "%s holds an adapter itself; with --adapter, name the folder of the "
                           "model that the adapters share",
                           args->words[0]);
    if (folder.has_adapter)
        return open_adapter(args, mode, settings, &folder, weights, arena, out);
    LATHE_TRY(check_folder(folder.dir));
    if (is_set(args, "model.path"))
        return lathe_error(LATHE_E_ARG,
                           "--model.path and the folder %s are given; expected only one of them",
                           args->words[0]);
    LATHE_TRY(lathe_model_folder_check(&folder));
    LATHE_TRY(lathe_settings_init(&own, arena));
    if (mode == LATHE_OPEN_EVALUATE)
        LATHE_TRY(add_evaluation(args, folder.dir, arena, &own));
    else
        lathe_cli_say_weights(&folder);
    if (has_adapters)
        return open_named(args, settings, folder.dir, folder.weights, &own, arena, out);
    if (mode != LATHE_OPEN_WEIGHTS)
        LATHE_TRY(lathe_app_use_saved_renderer(args, folder.dir, NULL, arena, &own));
    LATHE_TRY(lathe_folder_tokenizer(folder.dir, arena, &tokenizer));
    LATHE_TRY(model_overrides(args, settings, tokenizer, folder.weights, &own, arena, &list, &n));
    if (mode == LATHE_OPEN_EVALUATE)
        return open_to_evaluate(args, settings, &folder, list, n, arena, out);
    LATHE_TRY(lathe_run_open_mode(NULL, list, n, mode, out));
    return refuse_new_score(args, *out);
}

/* With a run file, --model.path is the base of its adapter; it is an error for a whole model. */
static lathe_status check_base(const lathe_args *args, const char *checkpoint, lathe_arena *arena)
{
    const char *adapter = lathe_path_join(arena, checkpoint, "adapter_config.json");
    if (!adapter)
        return LATHE_E_NOMEM;
    if (lathe_path_exists(adapter))
        return LATHE_OK;
    return lathe_error(LATHE_E_ARG,
                       "--model.path: the run file %s means its checkpoint, %s, which holds the "
                       "whole model; to use another, name its folder instead of the run file",
                       args->words[0], checkpoint);
}

static lathe_status open_run_file(const lathe_args *args, int32_t mode, const char *const *settings,
                                  lathe_arena *arena, lathe_run **out)
{
    const char *checkpoint = NULL;
    int32_t n = 0, weights = LATHE_WEIGHTS_AUTO, averaged = 0;
    lathe_run *run = NULL;
    const lathe_override *list = overrides(args, settings, 0, arena, &n);
    if (!list)
        return LATHE_E_NOMEM;
    if (lathe_args_value(args, "--weights")) /* model.weights is about model.path here */
        LATHE_TRY(lathe_cli_weights(args, &weights));
    LATHE_TRY(lathe_run_open_mode(args->words[0], list, n, mode, &run));
    *out = run;
    if (!run->set.checkpoint.dir)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: its checkpoint.dir is empty, so it has no checkpoint to read: set "
                           "it to the run's folder, or give a model's folder instead of the file",
                           args->words[0]);
    run->set.checkpoint.resume =
        lathe_resume_begins_anew(run->set.checkpoint.resume) ? "auto" : run->set.checkpoint.resume;
    LATHE_TRY(lathe_read_check(run));
    lathe_status status = lathe__run_resume(run, &checkpoint);
    if (status == LATHE_OK && !checkpoint)
        status = lathe_error(LATHE_E_CONFIG, "%s: its checkpoint.dir, %s, holds no checkpoint yet",
                             args->words[0], run->set.checkpoint.dir);
    if (status == LATHE_OK && is_set(args, "model.path"))
        status = check_base(args, checkpoint, arena);
    lathe_model_folder folder;
    if (status == LATHE_OK)
        status = lathe_cli_find_model(checkpoint, weights, arena, &folder);
    LATHE_TRY(status);
    if (folder.is_average)
        LATHE_TRY(lathe_checkpoint_take_average(lathe__run_saved(run), folder.dir, &averaged));
    lathe_cli_say_weights(&folder);
    return LATHE_OK;
}

lathe_status lathe_app_open_model(const lathe_args *args, int32_t mode, const char *const *settings,
                                  lathe_run **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const char *word = args->words[0];
    lathe_status status = LATHE_OK;
    lathe_app_warn_idle_overrides(args);
    if (lathe_path_is_model(word))
        status = open_folder(args, mode, settings, &arena, out);
    else if ((status = lathe_app_check_model_word(word)) == LATHE_OK &&
             lathe_args_each(args, "--adapter", 0))
        status =
            lathe_error(LATHE_E_ARG,
                        "%s: a run file; with --adapter, name the folder of the model that the "
                        "adapters share",
                        word);
    else if (status == LATHE_OK)
        status = open_run_file(args, mode, settings, &arena, out);
    lathe_arena_fini(&arena);
    return status;
}

/* Opens a run for the model that a command names. */
#include "session/open_model.h"

#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/model_path.h"
#include "checkpoint/state/adapter_file.h"
#include "checkpoint/state/checkpoint.h"
#include "config/config.h"
#include "files/gguf/model_files.h"
#include "run/api/save_load.h"
#include "run/folder/adapter_folder.h"
#include "run/folder/named_open.h"
#include "run/folder/other_adapter.h"
#include "run/folder/read_check.h"
#include "run/open/opening.h"
#include "run/state/run_saved.h"
#include "session/eval_data.h"
#include "session/held_log.h"
#include "session/idle_overrides.h"
#include "session/model_word.h"
#include "session/named_folders.h"
#include "session/saved_renderer.h"
#include "session/which_weights.h"

/* Longest context of a model's folder, unless data.seq_len sets another. */
#define MAX_POSITIONS 4096

/* Reads from the model's folder the row length (the longest that the model supports, and at most a
 * usual maximum), and the number of labels if it is a sequence classifier, else 0. The edits may
 * name folders of plugins and the plugin of the model's family. */
static lathe_status read_folder(lathe_run_inputs *inputs, const char *path,
                                const lathe_edits *edits, int64_t *out_length, int32_t *out_labels)
{
    lathe_model_config model = {0};
    lathe_model_source source = {inputs->registry, NULL};
    lathe_config *config = NULL;
    lathe_diags diags = {0};
    lathe_status status = lathe_config_of_edits(edits, 0, source.registry, &diags, &config);
    if (status == LATHE_OK) {
        source.family = lathe_config_part(config, LATHE_KIND_MODEL)->component;
        status = lathe_model_config_load_with(&inputs->texts, &source, path, &model);
    }
    if (status == LATHE_OK) {
        *out_length = model.max_positions < MAX_POSITIONS ? model.max_positions : MAX_POSITIONS;
        *out_labels = model.n_labels;
    }
    lathe_model_config_fini(&model);
    lathe_config_destroy(config);
    lathe_diags_fini(&diags);
    return status;
}

/* Opens a run with the edits, of what was read for the request so far. */
static lathe_status open_run(const lathe_model_request *ask, const lathe_edits *edits,
                             int32_t wants, lathe_run **out)
{
    const lathe_run_source from = {NULL, edits, ask->inputs};
    return lathe_run_open_for(&from, wants, out);
}

/* Adds the settings of the command, then those of the caller, which win. */
static void add_of_caller(const lathe_model_request *ask, lathe_edits *io)
{
    for (int32_t i = 0; ask->own && i < ask->own->n; i++)
        if (!lathe__request_sets(ask, ask->own->list[i].key))
            lathe_edits_add(io, &ask->own->list[i]);
    lathe_edits_take(io, ask->edits, 0);
}

static lathe_status check_folder(const char *path)
{
    char hint[LATHE_HUB_HINT];
    if (!lathe_model_has(path, "config.json"))
        return lathe_error(LATHE_E_CONFIG, "%s: has no config.json, so it is not a model folder%s",
                           path, lathe_models_hint(path, hint));
    return LATHE_OK;
}

static lathe_status refuse_reference(const lathe_model_request *ask, const lathe_run *run)
{
    if (!run->params.has_reference)
        return LATHE_OK;
    return lathe_error(
        LATHE_E_CONFIG,
        "%s: stage \"%s\" compares the model with the one before training, which the "
        "folder does not name, or which is not there: name the run file instead of the "
        "folder",
        ask->word, run->parts.stage.component->plugin->name);
}

/* A score of random weights says nothing about the folder. */
static lathe_status refuse_new_score(const lathe_model_request *ask, const lathe_run *run)
{
    const int32_t row = lathe_params_find(&run->params, "score.weight");
    if (row < 0 || run->params.rows[row]->stage_head != LATHE_HEAD_NEW)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG,
                       "%s: stage \"%s\" reads a reward model, and the folder has no score.weight: "
                       "name the folder of a reward model, or another stage",
                       ask->word, run->parts.stage.component->plugin->name);
}

/* ---- what a folder's own manifest says ---- */

/* Whether lathe eval got no data, so that it takes those of the folder's run. */
static int lacks_data(const lathe_model_request *ask)
{
    return ask->evaluates && !ask->data && !lathe__request_sets(ask, "data.validation");
}

/* Adds what the run evaluated with, unless the user says otherwise. config: NULL: of no run. */
static lathe_status add_of_run(const lathe_model_request *ask, const char *path,
                               const json_t *config, lathe_arena *arena,
                               lathe_setting_list *settings)
{
    if (config)
        LATHE_TRY(lathe_settings_add_evaluation(settings, arena, ask->inputs->registry, config,
                                                lathe__request_sets(ask, "stage.name")));
    if (!lacks_data(ask))
        return LATHE_OK;
    const lathe_status status = lathe_settings_add_validation(settings, arena, path);
    return status == LATHE_OK ? status : lathe_error_about(status, LATHE_SESSION_SECTION, "data");
}

/* Adds what the run of the folder evaluated with, unless the user says otherwise, and says so. */
static lathe_status add_evaluation(const lathe_model_request *ask, const char *path,
                                   lathe_arena *arena, lathe_setting_list *settings)
{
    json_t *config = NULL;
    int32_t has_manifest;
    LATHE_TRY(lathe_folder_config(path, arena, &config, &has_manifest));
    const char *stage =
        json_string_value(json_object_get(json_object_get(config, "stage"), "name"));
    const lathe_status status = add_of_run(ask, path, config, arena, settings);
    if (status == LATHE_OK && stage && lathe__request_sets(ask, "stage.name"))
        lathe_log(
            LATHE_LOG_INFO,
            "evaluates by stage %s, with the length of rows and micro-batch with which %s was "
            "trained",
            lathe__request_value(ask, "stage.name"), path);
    else if (status == LATHE_OK && stage)
        lathe_log(LATHE_LOG_INFO,
                  "evaluates as %s was trained: stage %s with its settings, and the length of rows "
                  "and micro-batch%s of its run (stage.name and the like change it)",
                  path, stage, lacks_data(ask) ? ", on the validation data" : "");
    json_decref(config);
    return status;
}

/* Adds the settings that the user does not override. */
static void add_of_folder(const lathe_model_request *ask, const lathe_setting_list *settings,
                          lathe_edits *io)
{
    for (int32_t i = 0; i < settings->n; i++)
        if (!lathe__request_sets(ask, settings->edits[i].key))
            lathe_edits_add(io, &settings->edits[i]);
}

/* Adds data.seq_len for the model in `folder`, and stage rm if it is a reward model, unless the
 * user or the settings have them. */
static lathe_status add_of_model(const lathe_model_request *ask, const lathe_setting_list *settings,
                                 const char *folder, lathe_edits *io)
{
    int64_t length = 0;
    int32_t n_labels = 0;
    LATHE_TRY(read_folder(ask->inputs, folder, io, &length, &n_labels));
    if (n_labels == 1 && !lathe__request_sets(ask, "stage.name") &&
        !lathe_settings_have(settings, "stage.name"))
        lathe_edits_text(io, LATHE_BY_FOLDER, "stage.name", "rm");
    if (!lathe__request_sets(ask, "data.seq_len") &&
        (ask->row_tokens > 0 || !lathe_settings_have(settings, "data.seq_len")))
        lathe_edits_int(io, LATHE_BY_FOLDER, "data.seq_len",
                        ask->row_tokens > 0 && ask->row_tokens < length ? ask->row_tokens : length);
    return LATHE_OK;
}

/* Adds the tokenizer with which the folder was trained, if it says which, and the chat template of
 * raw bytes. */
static lathe_status add_tokenizer(const lathe_model_request *ask, const char *path,
                                  lathe_arena *arena, lathe_edits *io)
{
    const char *tokenizer = NULL, *chat = NULL;
    if (lathe__request_sets(ask, "tokenizer.path"))
        return LATHE_OK;
    LATHE_TRY(lathe_folder_tokenizer(path, arena, &tokenizer));
    if (tokenizer)
        lathe_edits_text(io, LATHE_BY_FOLDER, "tokenizer.path", tokenizer);
    if (!lathe__request_sets(ask, "data.chat_template"))
        LATHE_TRY(lathe_folder_bytes_template(path, arena, &chat));
    if (chat)
        lathe_edits_text(io, LATHE_BY_FOLDER, "data.chat_template", chat);
    return LATHE_OK;
}

/* The folder of model.path means itself: the choice was made, or the adapter names it. */
static void add_exactly(lathe_edits *io)
{
    lathe_edits_text(io, LATHE_BY_FOLDER, "model.weights", "training");
}

/* ---- an adapter's folder ---- */

/* Adds settings of the command and of the adapter, the base, and the tokenizer. */
static lathe_status add_adapter(const lathe_model_request *ask, const char *path,
                                const lathe_adapter_folder *folder, int32_t which,
                                lathe_arena *arena, lathe_edits *io)
{
    add_of_caller(ask, io);
    add_of_folder(ask, &folder->settings, io);
    LATHE_TRY(add_of_model(ask, &folder->settings, folder->base, io));
    if (!lathe__request_sets(ask, "model.path"))
        lathe_edits_text(io, LATHE_BY_FOLDER, "model.path", folder->base);
    if (!lathe__request_sets(ask, "model.path") || which == LATHE_WEIGHTS_TRAINING)
        add_exactly(io);
    LATHE_TRY(add_tokenizer(ask, path, arena, io));
    return io->status;
}

/* Loads the weights of a checkpoint: verifies it, and takes the average instead of the training
 * weights if that is chosen. An adapter's folder may lack a manifest. */
static lathe_status load_weights(const lathe_model_folder *folder, int32_t has_manifest,
                                 lathe_run *run)
{
    const char *checkpoint = NULL;
    int32_t averaged = 0;
    lathe_which_weights_say(folder);
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
static lathe_status find_given(const lathe_model_request *ask, int32_t which, lathe_arena *arena,
                               const char **out)
{
    const char *path = lathe__request_value(ask, "model.path");
    lathe_model_folder folder;
    *out = path && path[0] ? path : NULL;
    if (!*out || !lathe_path_is_model(path))
        return LATHE_OK; /* that it is not there is told at its key */
    LATHE_TRY(lathe_model_folder_find(
        path, which == LATHE_WEIGHTS_TRAINING ? which : LATHE_WEIGHTS_AUTO, arena, &folder));
    *out = folder.weights;
    return LATHE_OK;
}

static lathe_status open_adapter(const lathe_model_request *ask, int32_t mode,
                                 const lathe_model_folder *found, int32_t which, lathe_arena *arena,
                                 lathe_run **out)
{
    lathe_adapter_folder folder;
    lathe_edits edits = {.n = 0};
    const char *given = NULL, *const path = found->dir;
    LATHE_TRY(lathe_model_folder_check(found));
    LATHE_TRY(find_given(ask, which, arena, &given));
    LATHE_TRY(lathe_adapter_folder_read(path, given, arena, &folder));
    LATHE_TRY(check_base_of(path, given, folder.base, arena));
    if (mode == LATHE_OPEN_EVALUATE)
        LATHE_TRY(add_evaluation(ask, path, arena, &folder.settings));
    if (mode != LATHE_OPEN_WEIGHTS)
        LATHE_TRY(lathe_session_use_renderer(ask, path, folder.base, arena, &folder.settings));
    lathe_status status = add_adapter(ask, path, &folder, which, arena, &edits);
    if (status == LATHE_OK)
        status = open_run(ask, &edits, mode, out);
    lathe_edits_fini(&edits);
    LATHE_TRY(status);
    if (strcmp(folder.base, path) == 0) /* otherwise the base is the model before training */
        LATHE_TRY(refuse_reference(ask, *out));
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
                       "(stage.name)",
                       path, base, d.detail);
}

/* Adds the settings with which the run of a checkpoint began. base: its model.path; NULL: none. */
static lathe_status add_beginning(const lathe_model_request *ask, const char *path,
                                  const lathe_setting_list *more, const char *base,
                                  lathe_arena *arena, lathe_edits *io)
{
    add_of_caller(ask, io);
    add_of_folder(ask, more, io);
    if (base) {
        lathe_edits_text(io, LATHE_BY_FOLDER, "model.path", base);
        add_exactly(io);
    }
    LATHE_TRY(add_tokenizer(ask, path, arena, io));
    return io->status;
}

/* Opens the run of a checkpoint again as it began, and loads the checkpoint: for a stage that
 * compares the model with the one before training. *out is replaced. */
static lathe_status reopen_with_reference(const lathe_model_request *ask, int32_t mode,
                                          const lathe_model_folder *folder, lathe_arena *arena,
                                          lathe_run **out)
{
    json_t *config = NULL;
    int32_t has_manifest;
    lathe_setting_list more;
    lathe_edits edits = {.n = 0};
    const char *const path = folder->dir;
    LATHE_TRY(lathe_folder_config(path, arena, &config, &has_manifest));
    const char *named =
        json_string_value(json_object_get(json_object_get(config, "model"), "path"));
    const char *base = named ? lathe_arena_strdup(arena, named) : NULL;
    lathe_status status = lathe_settings_init(&more, arena);
    more.dir = path;
    if (status != LATHE_OK)
        goto out;
    if (config && !named)
        status = lathe_settings_add_section(&more, arena, config, "model");
    if (status != LATHE_OK)
        goto out;
    if (config && !lathe_model_has(path, "tokenizer.json"))
        status = lathe_settings_add_section(&more, arena, config, "tokenizer");
    else if (config)
        status = lathe_settings_add_tokens(&more, arena, config);
    if (status != LATHE_OK)
        goto out;
    if (config)
        status = add_of_run(ask, path, config, arena, &more);
out:
    json_decref(config);
    LATHE_TRY(status);
    if (more.n == 0 || (named && !lathe_path_is_model(base)))
        return refuse_reference(ask, *out);
    if (base)
        LATHE_TRY(check_reference(path, base, arena));
    LATHE_TRY(lathe_session_use_renderer(ask, path, NULL, arena, &more));
    lathe_run_close(*out);
    *out = NULL;
    status = add_beginning(ask, path, &more, base, arena, &edits);
    if (status == LATHE_OK)
        status = open_run(ask, &edits, mode, out);
    lathe_edits_fini(&edits);
    return status == LATHE_OK ? load_weights(folder, 1, *out) : status;
}

/* Opens a model's folder, and opens it again if its stage compares it with the model before
 * training. What the first opening says is then dropped, because the second says it too. */
static lathe_status open_to_evaluate(const lathe_model_request *ask,
                                     const lathe_model_folder *folder, const lathe_edits *edits,
                                     lathe_arena *arena, lathe_run **out)
{
    lathe_held_log said;
    lathe_which_weights_say(folder); /* once in a process: what is held may be dropped */
    lathe_held_log_begin(&said);
    if (!lathe_edits_have(edits, 0, "stage.name"))
        lathe_eval_say_stage(ask, folder->dir);
    lathe_status status = open_run(ask, edits, LATHE_OPEN_EVALUATE, out);
    const int reopens = status == LATHE_OK && (*out)->params.has_reference;
    lathe_held_log_end(&said, !reopens);
    LATHE_TRY(status);
    LATHE_TRY(refuse_new_score(ask, *out));
    return reopens ? reopen_with_reference(ask, LATHE_OPEN_EVALUATE, folder, arena, out) : LATHE_OK;
}

/* Adds settings of the command and of a model's folder, the model in it, and tokenizer.path (NULL:
 * none). */
static lathe_status add_model(const lathe_model_request *ask, const char *tokenizer,
                              const char *model, const lathe_setting_list *own, lathe_edits *io)
{
    add_of_caller(ask, io);
    add_of_folder(ask, own, io);
    LATHE_TRY(add_of_model(ask, own, model, io));
    lathe_edits_text(io, LATHE_BY_FOLDER, "model.path", model);
    add_exactly(io);
    if (tokenizer && !lathe__request_sets(ask, "tokenizer.path"))
        lathe_edits_text(io, LATHE_BY_FOLDER, "tokenizer.path", tokenizer);
    return io->status;
}

/* Opens a model's folder with the adapters of the command line. */
static lathe_status open_named(const lathe_model_request *ask, const char *path, const char *model,
                               lathe_setting_list *own, lathe_arena *arena, lathe_run **out)
{
    lathe_named_adapters *named = NULL;
    lathe_edits edits = {.n = 0};
    const char *tokenizer = NULL;
    const lathe_run_source from = {NULL, &edits, ask->inputs};
    LATHE_TRY(lathe_named_folders_read(ask, path, arena, own, &tokenizer, &named));
    lathe_status status = add_model(ask, tokenizer, model, own, &edits);
    if (status == LATHE_OK)
        status = lathe_run_open_named(&from, named, out); /* which then has them */
    else
        lathe__named_adapters_destroy(named);
    lathe_edits_fini(&edits);
    return status;
}

static lathe_status open_folder(const lathe_model_request *ask, int32_t mode, lathe_arena *arena,
                                lathe_run **out)
{
    const char *tokenizer = NULL;
    int32_t weights;
    lathe_edits edits = {.n = 0};
    lathe_setting_list own;
    lathe_model_folder folder;
    LATHE_TRY(lathe__request_weights(ask, &weights));
    LATHE_TRY(lathe_which_weights_find(ask->word, weights, arena, &folder));
    if (folder.has_adapter && ask->n_adapters > 0)
        return lathe_error_at(
            LATHE_E_ARG, LATHE_SESSION_SECTION, "adapters",
            "%s holds an adapter itself; with several adapters, name the folder of the "
            "model that the adapters share",
            ask->word);
    if (folder.has_adapter)
        return open_adapter(ask, mode, &folder, weights, arena, out);
    LATHE_TRY(check_folder(folder.dir));
    if (lathe__request_sets(ask, "model.path"))
        return lathe_error(LATHE_E_ARG,
                           "model.path and the folder %s are given; expected only one of them",
                           ask->word);
    LATHE_TRY(lathe_model_folder_check(&folder));
    LATHE_TRY(lathe_settings_init(&own, arena));
    own.dir = folder.dir;
    if (mode == LATHE_OPEN_EVALUATE)
        LATHE_TRY(add_evaluation(ask, folder.dir, arena, &own));
    else
        lathe_which_weights_say(&folder);
    if (ask->n_adapters > 0)
        return open_named(ask, folder.dir, folder.weights, &own, arena, out);
    if (mode != LATHE_OPEN_WEIGHTS)
        LATHE_TRY(lathe_session_use_renderer(ask, folder.dir, NULL, arena, &own));
    LATHE_TRY(lathe_folder_tokenizer(folder.dir, arena, &tokenizer));
    lathe_status status = add_model(ask, tokenizer, folder.weights, &own, &edits);
    if (status == LATHE_OK && mode == LATHE_OPEN_EVALUATE)
        status = open_to_evaluate(ask, &folder, &edits, arena, out);
    else if (status == LATHE_OK && (status = open_run(ask, &edits, mode, out)) == LATHE_OK)
        status = refuse_new_score(ask, *out);
    lathe_edits_fini(&edits);
    return status;
}

/* With a run file, --model.path is the base of its adapter; it is an error for a whole model. */
static lathe_status check_base(const lathe_model_request *ask, const char *checkpoint,
                               lathe_arena *arena)
{
    const char *adapter = lathe_path_join(arena, checkpoint, "adapter_config.json");
    if (!adapter)
        return LATHE_E_NOMEM;
    if (lathe_path_exists(adapter))
        return LATHE_OK;
    return lathe_error(LATHE_E_ARG,
                       "model.path: the run file %s means its checkpoint, %s, which holds the "
                       "whole model; to use another, name its folder instead of the run file",
                       ask->word, checkpoint);
}

static lathe_status open_run_file(const lathe_model_request *ask, int32_t mode, lathe_arena *arena,
                                  lathe_run **out)
{
    const char *checkpoint = NULL;
    const int32_t weights = ask->weights; /* model.weights is about model.path here */
    int32_t averaged = 0;
    lathe_edits own = {.n = 0};
    for (int32_t i = 0; ask->own && i < ask->own->n; i++)
        if (!lathe__request_sets(ask, ask->own->list[i].key))
            lathe_edits_add(&own, &ask->own->list[i]);
    const lathe_status opened = open_run(ask, &own, mode, out);
    lathe_edits_fini(&own);
    LATHE_TRY(opened);
    lathe_run *const run = *out;
    if (!run->set.checkpoint.dir)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: its checkpoint.dir is empty, so it has no checkpoint to read: set "
                           "it to the run's folder, or give a model's folder instead of the file",
                           ask->word);
    run->set.checkpoint.resume =
        lathe_resume_begins_anew(run->set.checkpoint.resume) ? "auto" : run->set.checkpoint.resume;
    LATHE_TRY(lathe_read_check(run));
    lathe_status status = lathe__run_resume(run, &checkpoint);
    if (status == LATHE_OK && !checkpoint)
        status = lathe_error(LATHE_E_CONFIG, "%s: its checkpoint.dir, %s, holds no checkpoint yet",
                             ask->word, run->set.checkpoint.dir);
    if (status == LATHE_OK && lathe__request_sets(ask, "model.path"))
        status = check_base(ask, checkpoint, arena);
    lathe_model_folder folder;
    if (status == LATHE_OK)
        status = lathe_which_weights_find(checkpoint, weights, arena, &folder);
    LATHE_TRY(status);
    if (folder.is_average)
        LATHE_TRY(lathe_checkpoint_take_average(lathe__run_saved(run), folder.dir, &averaged));
    lathe_which_weights_say(&folder);
    return LATHE_OK;
}

static lathe_status open_word(const lathe_model_request *ask, int32_t mode, lathe_arena *arena,
                              lathe_run **out)
{
    lathe_session_warn_idle(ask);
    if (lathe_path_is_model(ask->word))
        return open_folder(ask, mode, arena, out);
    LATHE_TRY(lathe_model_word_check(ask->word));
    if (ask->n_adapters > 0)
        return lathe_error_at(LATHE_E_ARG, LATHE_SESSION_SECTION, "adapters",
                              "%s: a run file; with adapters, name the folder of the model that "
                              "the adapters share",
                              ask->word);
    return open_run_file(ask, mode, arena, out);
}

lathe_status lathe_model_open(const lathe_model_request *ask, int32_t mode, lathe_run **out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_model_request own = *ask;
    lathe_status status = ask->inputs ? LATHE_OK : lathe__request_begin(&own);
    if (status == LATHE_OK)
        status = open_word(&own, mode, &arena, out);
    if (!ask->inputs)
        lathe__request_end(&own);
    lathe_arena_fini(&arena);
    return status;
}

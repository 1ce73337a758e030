/* Opens the run's tokenizer, shards and loaders. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/model_path.h"
#include "chat/template/chat_template.h"
#include "checkpoint/state/checkpoint_folder.h"
#include "data/rows/learned_tokenizer.h"
#include "files/gguf/model_files.h"
#include "metrics/data_progress.h"
#include "run/decide/end_tokens.h"
#include "run/decide/new_tokens.h"
#include "run/decide/objective_check.h"
#include "run/decide/renderer_choice.h"
#include "run/decide/renderer_tokens.h"
#include "run/decide/token_check.h"
#include "run/parts/data_notes.h"
#include "run/parts/reward_records.h"
#include "run/parts/run_parts.h"
#include "run/parts/run_ranks.h"
#include "run/parts/stored_teacher.h"
#include "run/state/run_state.h"
#include "tokenizer/json/tokenizer_file.h"

#define DRY_BYTES (4LL << 20) /* bytes of each dataset that a dry run reads */

/* ---- the tokenizer ---- */

/* The run's latest checkpoint, or the one that checkpoint.resume names, when it holds a tokenizer;
 * else NULL. */
static lathe_status checkpoint_of(lathe_run *run, const char **out)
{
    const char *resume = run->set.checkpoint.resume, *folder = NULL;
    *out = NULL;
    if (lathe_resume_begins_anew(resume) || strcmp(resume, "auto") == 0)
        resume = run->set.checkpoint.dir;
    if (resume == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_checkpoint_resolve(&run->arena, resume, &folder));
    const char *json = lathe_path_join(&run->arena, folder, "tokenizer.json");
    if (json == NULL)
        return LATHE_E_NOMEM;
    *out = lathe_path_exists(json) ? folder : NULL;
    return LATHE_OK;
}

/* Reads the tokenizer from the checkpoint that generates or is evaluated, because the data on
 * which it was trained may have changed or been removed. */
static lathe_status learned_before(lathe_run *run, int *out_found)
{
    const char *folder = NULL;
    *out_found = 0;
    if (!lathe__run_infers(run) && !lathe__run_evaluates(run))
        return LATHE_OK;
    LATHE_TRY(checkpoint_of(run, &folder));
    if (folder == NULL)
        return LATHE_OK;
    *out_found = 1;
    run->data.tokenizer_dir = folder;
    return lathe_tokenizer_load_with(&run->inputs->texts, folder, &run->data.tokenizer);
}

/* Makes the folder data.cache_dir. */
static lathe_status make_cache(lathe_run *run)
{
    if (run->set.cache_dir == NULL)
        return lathe__run_refuse(run, "data", "cache_dir",
                                 "data.cache_dir is empty; expected a folder for the tokenised "
                                 "data, such as \".lathe/cache\"");
    return lathe_dir_create(run->set.cache_dir) == LATHE_OK
               ? LATHE_OK
               : lathe__run_refuse(run, "data", "cache_dir", "data.cache_dir: %s",
                                   lathe_error_message());
}

/* Places an error of a file in data.cache_dir at that key. */
static lathe_status at_cache(lathe_run *run, lathe_status status)
{
    return status == LATHE_E_IO && strcmp(lathe_error_key(), "cache_dir") == 0
               ? lathe__run_refuse(run, "data", "cache_dir", "data.cache_dir: %s",
                                   lathe_error_message())
               : status;
}

static lathe_status learn(lathe_run *run)
{
    const lathe_stage_v1 *stage = run->parts.stage.component ? run->parts.stage.table : NULL;
    const lathe_learning from = {.where = lathe_config_path(run->config),
                                 .config = run->config,
                                 .stage = stage,
                                 .train = run->set.tokenizer_train,
                                 .cache_dir = run->set.cache_dir};
    int found = 0;
    LATHE_TRY(learned_before(run, &found));
    if (found)
        return LATHE_OK;
    LATHE_TRY(make_cache(run));
    return at_cache(run, lathe_tokenizer_learn(&from, &run->arena, &run->data.tokenizer,
                                               &run->data.tokenizer_dir));
}

/* The folder of a tokenizer that is not trained; NULL: raw bytes, which
 * lathe__token_check_bytes refuses where they are no choice. */
static const char *folder_of_tokenizer(const lathe_run *run)
{
    const char *path = run->set.tokenizer_path, *model = run->set.model_path;
    if (path)
        return strcmp(path, "bytes") == 0 ? NULL : path;
    return model && lathe_model_has(model, "tokenizer.json") ? model : NULL;
}

static lathe_status open_tokenizer(lathe_run *run)
{
    if (run->set.tokenizer_train)
        return learn(run);
    const char *path = folder_of_tokenizer(run);
    if (path == NULL)
        return lathe_tokenizer_bytes(&run->data.tokenizer);
    run->data.tokenizer_dir = path;
    return lathe_tokenizer_load_with(&run->inputs->texts, path, &run->data.tokenizer);
}

void lathe__run_name_tokenizer(lathe_run *run)
{
    if (run->data.tokenizer == NULL && run->set.tokenizer_train == NULL)
        run->data.tokenizer_dir = folder_of_tokenizer(run);
}

/* Whether a plan, which writes no tokenizer, lacks a token that tokenizer.add_tokens adds. */
static int is_planned(const lathe_run *run, const char *name)
{
    const lathe_texts *added = &run->set.add_tokens;
    for (int64_t i = 0; i < added->n && !lathe__new_tokens_are_written(run); i++)
        if (strcmp(added->strs[i], name) == 0)
            return 1;
    return 0;
}

static lathe_status read_stop_tokens(lathe_run *run)
{
    const lathe_value *names = lathe_config_get(run->config, "generate", "stop_tokens");
    const int64_t n = names && names->is_set ? names->n : 0;
    if (n > LATHE_MAX_STOP_TOKENS)
        return lathe__run_refuse(run, "generate", "stop_tokens",
                                 "generate.stop_tokens has %lld tokens; expected at most %d",
                                 (long long)n, LATHE_MAX_STOP_TOKENS);
    for (int64_t i = 0; i < n; i++) {
        const char *name = names->strs[i];
        const int32_t id = lathe_tokenizer_id(run->data.tokenizer, name, (int64_t)strlen(name));
        if (id < 0 && is_planned(run, name))
            continue;
        if (id < 0)
            return lathe__run_refuse(run, "generate", "stop_tokens",
                                     "generate.stop_tokens: the tokenizer has no token \"%s\"; "
                                     "generate.stop takes any text",
                                     name);
        run->data.stop_tokens[run->data.n_stop_tokens++] = id;
    }
    return LATHE_OK;
}

lathe_status lathe__run_tokenizer(lathe_run *run)
{
    LATHE_TRY(open_tokenizer(run));
    LATHE_TRY(lathe__new_tokens_add(run));
    LATHE_TRY(lathe__token_check_bytes(run));
    LATHE_TRY(lathe__objective_tokens(run));
    LATHE_TRY(read_stop_tokens(run));
    return lathe__end_tokens_of_stage(run);
}

/* ---- the chat template ---- */

/* Lets a renderer serve the template, as [renderer] says. */
static lathe_status serve(lathe_run *run)
{
    const lathe_part *part = lathe_config_part(run->config, LATHE_KIND_RENDERER);
    const char *why = NULL;
    const lathe_status status =
        lathe_renderer_choose(run->registry, part->name, part->values, run->model.model_type,
                              run->data.chat, &run->arena, &run->parts.renderer, &why);
    if (status == LATHE_OK && run->parts.renderer.component)
        lathe_log(LATHE_LOG_DEBUG, "renderer %s: %s", run->parts.renderer.component->plugin->name,
                  why);
    return status == LATHE_OK && part->component ? lathe__renderer_tokens_warn(run) : status;
}

/* Loads the template of a folder. A renderer that is named needs none. */
static lathe_status load_template_of(lathe_run *run, const char *folder)
{
    const lathe_part *part = lathe_config_part(run->config, LATHE_KIND_RENDERER);
    return part->component ? lathe_chat_template_load_any(folder, &run->data.chat)
                           : lathe_chat_template_load(folder, &run->data.chat);
}

/* Loads the template of the tokenizer's folder, or of the model's. Only data with conversations
 * need a template, so an error in it is stored, and reported only for such data. */
static lathe_status find_chat_template(lathe_run *run)
{
    const char *const folders[] = {run->data.tokenizer_dir, run->set.model_path};
    const char *asked = NULL;
    for (int i = 0; i < 2; i++) {
        if (folders[i] == NULL || !lathe_path_is_model(folders[i]))
            continue;
        asked = folders[i];
        const lathe_status status = load_template_of(run, asked);
        if (status == LATHE_OK || status == LATHE_E_NOMEM)
            return status;
        if (status == LATHE_E_NOT_FOUND)
            continue;
        run->data.no_chat = lathe_arena_strdup(&run->arena, lathe_error_message());
        return run->data.no_chat ? LATHE_OK : LATHE_E_NOMEM;
    }
    run->data.no_chat =
        asked
            ? lathe_arena_printf(&run->arena,
                                 "%s has none; expected chat_template.jinja, or chat_template in "
                                 "tokenizer_config.json, or renderer.name (lathe ls renderer)",
                                 asked)
            : lathe_arena_strdup(&run->arena,
                                 "the run has no folder of a model or tokenizer; set model.path or "
                                 "tokenizer.path to one that has a chat template");
    return run->data.no_chat ? LATHE_OK : LATHE_E_NOMEM;
}

/* Loads the template that data.chat_template names. The special tokens are those of the run's own
 * tokenizer, as in the folders that the run writes. */
static lathe_status load_given(lathe_run *run, const char *path)
{
    const char *tokens = run->data.tokenizer_dir ? run->data.tokenizer_dir : run->set.model_path;
    if (tokens && !lathe_path_is_model(tokens))
        tokens = NULL;
    if (lathe_chat_template_load_for(path, tokens, &run->data.chat) != LATHE_OK)
        return lathe__run_refuse(run, "data", "chat_template", "data.chat_template: %s",
                                 lathe_error_message());
    run->data.given = (lathe_given_template){lathe_chat_template_text(run->data.chat, 0),
                                             lathe_chat_template_text(run->data.chat, 1)};
    return LATHE_OK;
}

/* Loads the template that data.chat_template names, or the one of the folders, and gives it its
 * variables. */
lathe_status lathe__run_chat_template(lathe_run *run)
{
    const char *path = run->set.chat_template, *variables = run->set.chat_template_kwargs;
    if (run->data.chat || run->data.no_chat)
        return LATHE_OK;
    LATHE_TRY(path ? load_given(run, path) : find_chat_template(run));
    if (run->data.chat == NULL)
        return LATHE_OK;
    if (variables && lathe_chat_template_set_variables(run->data.chat, variables) != LATHE_OK)
        return lathe__run_refuse(run, "data", "chat_template_kwargs", "data.%s",
                                 lathe_error_message());
    LATHE_TRY(serve(run));
    return lathe__end_tokens_find(run);
}

/* ---- shards and loaders ---- */

/* Lists the files that the run itself writes or is made from, at most 3; returns their number. */
static int32_t own_files(const lathe_run *run, const char **out)
{
    const char *const all[] = {lathe_config_path(run->config), run->set.checkpoint.dir,
                               run->set.cache_dir};
    int32_t n = 0;
    for (int i = 0; i < 3; i++)
        if (all[i] && all[i][0])
            out[n++] = all[i];
    return n;
}

/* key: "datasets" or "validation". */
static lathe_status open_shards(lathe_run *run, const char *key, lathe_shards **out)
{
    const lathe_stage_v1 *stage = run->parts.stage.table;
    lathe_dataset *datasets = NULL;
    lathe_data_progress progress;
    int64_t n = 0;
    LATHE_TRY(make_cache(run));
    LATHE_TRY(lathe_datasets_read(run->config, key, &run->arena, &datasets, &n));
    LATHE_TRY(lathe__run_chat_template(run));
    run->data.n_inputs = run->data.n_columns = lathe_stage_columns(stage, run->data.inputs);
    run->data.n_inputs += lathe__stored_inputs(run, run->data.inputs + run->data.n_columns,
                                               run->data.shapes + run->data.n_columns);
    const char **own = lathe_arena_alloc(&run->arena, 3 * (int64_t)sizeof *own);
    if (own == NULL)
        return LATHE_E_NOMEM;
    const int32_t n_own = own_files(run, own);
    for (int64_t i = 0; i < n; i++) {
        datasets[i].chat = run->data.chat;
        datasets[i].no_chat = run->data.no_chat;
        datasets[i].inputs = run->data.inputs;
        datasets[i].n_inputs = run->data.n_columns;
        datasets[i].own = own;
        datasets[i].n_own = n_own;
    }
    lathe_data_progress_init(&progress, stderr, run->set.progress);
    const lathe_status status =
        lathe__run_is_dry(run)
            ? lathe_shards_sample(datasets, n, lathe_rows_of(stage), run->data.tokenizer,
                                  run->set.cache_dir, DRY_BYTES, out)
            : lathe_shards_prepare(datasets, n, lathe_rows_of(stage), run->data.tokenizer,
                                   run->set.cache_dir, lathe_data_progress_show, &progress, out);
    lathe_data_progress_end(&progress);
    return at_cache(run, status);
}

/* Opens a split of the run's data. evaluates 1: one pass in the order of the data; 0: endless. */
static lathe_status open_loader(lathe_run *run, const lathe_shards *shards, int32_t evaluates,
                                int32_t split, lathe_loader **out)
{
    const lathe_program_config program = lathe__run_program_config(run);
    const int divides = shards == run->data.shards && run->set.validation == NULL;
    const int is_causal = run->data.objective.stage.kind == LATHE_OBJECTIVE_CAUSAL;
    const lathe_logprob_set *stored = NULL;
    LATHE_TRY(lathe__stored_of(run, shards, &stored));
    const lathe_loader_config config = {.shards = shards,
                                        .n_rows = program.n_rows,
                                        .row_tokens = run->set.seq_len,
                                        .rank = run->programs.rank,
                                        .n_ranks = run->programs.n_ranks,
                                        .seed = run->set.data_seed,
                                        .no_shuffle = evaluates || !run->set.shuffle,
                                        .split = split,
                                        .validation_fraction =
                                            divides ? run->set.validation_split : 0.0,
                                        .validation_count = divides ? run->set.validation_count : 0,
                                        .n_epochs = evaluates ? 1 : 0,
                                        .n_prefetch = run->set.prefetch,
                                        .packing = run->set.packing,
                                        .overlong = run->set.overlong,
                                        .n_inputs = run->data.n_inputs,
                                        .inputs = run->data.inputs,
                                        .shapes = run->data.shapes,
                                        .stored = stored,
                                        .objective = is_causal ? NULL : &run->data.objective};
    return lathe_loader_create(&config, out);
}

/* Refuses rows longer than the training data: they would consist mostly of end-of-text tokens. */
static lathe_status check_length(const lathe_run *run)
{
    lathe_loader_facts facts;
    lathe_loader_facts_get(run->data.loader, &facts);
    if (lathe_shards_rows(run->data.shards) != LATHE_ROWS_PACKED ||
        facts.n_tokens >= run->set.seq_len)
        return LATHE_OK;
    return lathe__run_refuse(
        run, "data", "seq_len",
        "the data to train on has %lld tokens, fewer than one row of data.seq_len = %d; give more "
        "data, or set data.seq_len to %lld at most",
        (long long)facts.n_tokens, run->set.seq_len, (long long)facts.n_tokens);
}

/* Refuses more ranks than rows: each batch would repeat rows. */
static lathe_status check_rows(const lathe_run *run)
{
    const int64_t n_rows = lathe_loader_rows(run->data.loader);
    const lathe_layout_ask ask = lathe__run_layout_ask(&run->set);
    const int32_t max = lathe_layout_most_ranks(n_rows, &ask);
    char last[96] = " or set a shorter data.seq_len";
    if (run->programs.n_ranks <= 1 || n_rows >= run->programs.n_ranks)
        return LATHE_OK;
    if (max > 0)
        (void)snprintf(last, sizeof last, " set a shorter data.seq_len, or start at most %d rank%s",
                       max, max == 1 ? "" : "s");
    return lathe__run_refuse(run, "data", "datasets",
                             "the data to train on makes %lld rows, fewer than the %d ranks: give "
                             "more data,%s",
                             (long long)n_rows, run->programs.n_ranks, last);
}

/* Refuses data to evaluate on that is one token long: it has no target. */
/* The key that gives the data to evaluate on. */
static const char *validation_key(const lathe_run *run)
{
    return run->set.validation             ? "validation"
           : run->set.validation_split > 0 ? "validation_split"
                                           : "validation_count";
}

/* Warns of a single unpaired example, which has no other completion to be compared with. */
static void warn_of_single(const lathe_run *run)
{
    lathe_loader_facts facts;
    const lathe_shards *shards =
        run->set.validation ? run->data.validation_shards : run->data.shards;
    lathe_loader_facts_get(run->data.validation, &facts);
    if (lathe_row_shape_get(lathe_shards_rows(shards))->mixes && facts.n_rows == 1)
        lathe__run_warn(run, "data", validation_key(run),
                        "the data to evaluate on have one example: stage \"%s\" compares it with "
                        "the completion of another one, and without one it takes the divergence "
                        "from the reference as 0; give two or more",
                        run->parts.stage.component->plugin->name);
}

static lathe_status check_targets(const lathe_run *run)
{
    if (lathe_loader_tokens(run->data.validation) > 1)
        return LATHE_OK;
    return lathe__run_refuse(
        run, "data", validation_key(run),
        "the data to evaluate on has %lld token%s, and so no target; give more "
        "of them",
        (long long)lathe_loader_tokens(run->data.validation),
        lathe_loader_tokens(run->data.validation) == 1 ? "" : "s");
}

static lathe_status open_validation(lathe_run *run)
{
    if (!lathe_settings_has_validation(&run->set))
        return LATHE_OK;
    if (run->set.validation) {
        LATHE_TRY(open_shards(run, "validation", &run->data.validation_shards));
        LATHE_TRY(open_loader(run, run->data.validation_shards, 1, LATHE_SPLIT_TRAIN,
                              &run->data.validation));
        lathe__data_notes_validation(run);
        LATHE_TRY(
            lathe__data_check_overlong(run, run->data.validation, run->data.validation_shards));
    } else {
        LATHE_TRY(
            open_loader(run, run->data.shards, 1, LATHE_SPLIT_VALIDATION, &run->data.validation));
    }
    lathe_loader_cursor(run->data.validation, &run->data.validation_start);
    warn_of_single(run);
    return check_targets(run);
}

static lathe_status open_data(lathe_run *run)
{
    if (!lathe__run_reads_datasets(run))
        return open_validation(run);
    if (run->set.datasets == NULL)
        return lathe_error(LATHE_E_CONFIG, "%s: data.datasets names no data",
                           lathe_config_path(run->config));
    if (lathe__run_evaluates(run) && !lathe__run_makes_logprobs(run) &&
        !lathe_settings_has_validation(&run->set))
        return lathe__run_refuse(run, "data", "validation",
                                 "there is no data to evaluate on: set data.validation, "
                                 "data.validation_split or data.validation_count");
    LATHE_TRY(open_shards(run, "datasets", &run->data.shards));
    if (lathe__run_makes_logprobs(run))
        return run->set.validation ? open_shards(run, "validation", &run->data.validation_shards)
                                   : LATHE_OK;
    if (lathe__run_trains(run) || lathe__run_only_reads_data(run)) {
        LATHE_TRY(open_loader(run, run->data.shards, 0, LATHE_SPLIT_TRAIN, &run->data.loader));
        lathe__data_notes(run);
        lathe__end_tokens_warn(run);
        LATHE_TRY(check_length(run));
        LATHE_TRY(check_rows(run));
        LATHE_TRY(lathe__data_check_overlong(run, run->data.loader, run->data.shards));
        LATHE_TRY(lathe__reward_check_data(run, run->data.loader, run->data.shards));
        lathe_loader_cursor(run->data.loader, &run->at.cursor);
    }
    return open_validation(run);
}

lathe_status lathe__run_data(lathe_run *run)
{
    return lathe__run_first_alone(run, open_data);
}

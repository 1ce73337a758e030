/* Prepares a training: everything that decides whether it starts, up to the allocation of memory.
 *
 * lathe validate stops after this; lathe train continues with memory and weights. If
 * run->open.diags is set, the error of a stage is added to it, and the next stage that does not
 * need its result runs, so that all errors are reported at once; otherwise the first error ends the
 * preparation. Stages that take long (the data, training a tokenizer) come last, and run only if
 * there was no error before.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "checkpoint/state/adapter_file.h"
#include "checkpoint/state/checkpoint.h"
#include "generate/generator.h"
#include "optim/param_groups.h"
#include "run/decide/idle_keys.h"
#include "run/decide/moe_check.h"
#include "run/decide/run_check.h"
#include "run/folder/folder_check.h"
#include "run/folder/other_tokenizer.h"
#include "run/folder/reference_adapter.h"
#include "run/folder/run_folders.h"
#include "run/open/data_check.h"
#include "run/open/join_ranks.h"
#include "run/open/opening.h"
#include "run/open/rollout_keys.h"
#include "run/open/settings_check.h"
#include "run/parts/run_parts.h"
#include "run/parts/run_ranks.h"
#include "run/parts/teacher.h"
#include "run/plan/disk_check.h"
#include "run/plan/fit_search.h"
#include "run/plan/parallel_check.h"
#include "run/plan/shard_choice.h"
#include "run/plan/trial.h"
#include "run/resume/resume_check.h"
#include "run/state/run_saved.h"

/* A failure of the machine, which no change of the run file would correct. */
static int is_failure(lathe_status status)
{
    return status == LATHE_E_NOMEM || status == LATHE_E_DEVICE || status == LATHE_E_INTERRUPTED ||
           status == LATHE_E_RANK;
}

static int64_t n_errors(const lathe_run *run)
{
    return run->open.diags ? run->open.diags->n_errors : 0;
}

/* Handles a stage's status. Returns LATHE_OK if the stage succeeded, or if its error is in
 * run->open.diags now. `before`: number of errors when the stage began; section, key: the place of
 * an error that does not say its own. */
static lathe_status note(const lathe_run *run, lathe_status status, int64_t before,
                         const char *section, const char *key)
{
    const char *text = lathe_error_message();
    if (status == LATHE_OK || run->open.diags == NULL || is_failure(status))
        return status;
    if (n_errors(run) > before)
        return LATHE_OK;
    const lathe_place place = lathe_config_where_error(run->config, section, key);
    const lathe_place inner = lathe_error_place();
    lathe_diags_add(run->open.diags, LATHE_DIAG_ERROR, &place, NULL, "%s",
                    text[0] ? text : lathe_status_text(status));
    lathe_diags_inner(run->open.diags, &inner);
    return LATHE_OK;
}

/* Returns LATHE_E_CONFIG if there was an error so far. */
static lathe_status so_far(const lathe_run *run)
{
    return run->open.diags ? lathe_diags_status(run->open.diags) : LATHE_OK;
}

/* Prepares the plugins and the device, and checks the settings against each other. */
static lathe_status prepare_parts(lathe_run *run)
{
    const int64_t before = n_errors(run);
    lathe_status status =
        lathe__run_is_offline(run) ? lathe__run_parts(run) : lathe__run_components(run);
    if (lathe__run_is_offline(run) && status == LATHE_OK)
        status = lathe__run_check_precision(run);
    LATHE_TRY(note(run, status, before, "device", "name"));
    if (status == LATHE_OK && !lathe__run_is_offline(run))
        LATHE_TRY(
            note(run, lathe__reference_adapter_open(run), before, "model", "reference_adapter"));
    const int64_t then = n_errors(run);
    lathe__rollout_keys_warn(run);
    return note(run, lathe__settings_check(run), then, "train", "precision");
}

/* The key that names the tokenizer. */
static const char *tokenizer_key(const lathe_settings *set, const char **out_section)
{
    const int is_model = set->tokenizer_path == NULL && set->tokenizer_train == NULL;
    *out_section = is_model ? "model" : "tokenizer";
    return set->tokenizer_train ? "train" : "path";
}

/* ---- what another machine has ---- */

static int tokenizer_is_elsewhere(const lathe_run *run)
{
    const lathe_settings *s = &run->set;
    if (s->tokenizer_path)
        return strcmp(s->tokenizer_path, "bytes") != 0 &&
               lathe__is_elsewhere(run, s->tokenizer_path);
    return s->tokenizer_train == NULL && lathe__is_elsewhere(run, s->model_path);
}

/* A new model may get the size of its vocabulary from the tokenizer. */
static int model_is_elsewhere(const lathe_run *run)
{
    return lathe__is_elsewhere(run, run->set.model_path) ||
           (run->set.model_path == NULL && tokenizer_is_elsewhere(run) &&
            !lathe_config_is_set(run->config, "model", "vocab_size"));
}

static lathe_status prepare_tokenizer(lathe_run *run)
{
    const int64_t before = n_errors(run);
    const char *section, *key = tokenizer_key(&run->set, &section);
    lathe_status status = lathe__run_first_alone(run, lathe__run_tokenizer);
    if (status == LATHE_OK)
        status = lathe__other_tokenizer_warn(run);
    return note(run, status, before, section, key);
}

/* Prepares the parameters, the choice of what is trained, and the groups. Needs the parts, and also
 * the tokenizer if nothing else gives the vocabulary size. */
static lathe_status prepare_model(lathe_run *run)
{
    const char *key = run->set.model_path ? "path" : "model_type";
    int64_t before = n_errors(run);
    LATHE_TRY(note(run, lathe__run_params(run), before, "model", key));
    if (n_errors(run) > before)
        return LATHE_OK;
    /* An adapter declares its own parameters while the graph is built; then the groups are read. */
    const lathe_adapter_v1 *adapter = run->parts.adapter.table;
    if (run->parts.adapter.component != NULL && LATHE_HAS(adapter, wrap))
        return LATHE_OK;
    before = n_errors(run);
    LATHE_TRY(note(run,
                   lathe_param_groups_read(run->config, &run->params, &run->parts.optimizer,
                                           &run->parts.adapter, run->opt.base_lr, &run->arena,
                                           run->open.diags, &run->opt.groups),
                   before, "optimizer", "groups"));
    return LATHE_OK;
}

/* Checks that the prompt of the samples fits the context, and that the model's settings of
 * generation can be used. */
static lathe_status check_sample(const lathe_run *run)
{
    lathe_sampling sampling = {.size = (uint32_t)sizeof sampling};
    const lathe_prompt prompt = {.size = (uint32_t)sizeof prompt,
                                 .text = run->set.prompt ? run->set.prompt : ""};
    if (run->set.sample_every == 0 || run->generator == NULL || run->data.tokenizer == NULL)
        return LATHE_OK;
    LATHE_TRY(lathe_default_sampling(run, &sampling));
    const lathe_status status = lathe_generator_check(run->generator, &prompt);
    return status == LATHE_OK
               ? LATHE_OK
               : lathe_error_context(status, "generate.every wants samples of generate.prompt");
}

static lathe_status prepare_plan(lathe_run *run)
{
    const int64_t before = n_errors(run);
    LATHE_TRY(note(run, lathe__run_add_models(run), before, "model", "path"));
    LATHE_TRY(so_far(run));
    LATHE_TRY(note(run, lathe__run_plan(run), before, "device", "name"));
    LATHE_TRY(so_far(run));
    LATHE_TRY(note(run, lathe__moe_check(run), before, "moe", "z_loss"));
    LATHE_TRY(note(run, lathe__figure_check_best(run), before, "checkpoint", "best_metric"));
    LATHE_TRY(note(run, lathe__run_fits(run), before, "train", "memory_limit"));
    LATHE_TRY(note(run, lathe__teacher_check(run), before, "teacher", "path"));
    LATHE_TRY(note(run, check_sample(run), before, "generate", "prompt"));
    if (run->set.model_path == NULL)
        return LATHE_OK;
    LATHE_TRY(so_far(run));
    if (run->set.model_adapter)
        LATHE_TRY(note(run,
                       lathe__adapter_file_begin(lathe__run_saved(run), run->set.model_adapter, 0),
                       before, "model", "adapter"));
    if (run->parts.reference_adapter.component)
        LATHE_TRY(note(
            run,
            lathe__adapter_file_frozen(lathe__run_saved(run), &run->parts.reference_adapter,
                                       LATHE_REFERENCE_PREFIX, run->set.model_reference_adapter, 0),
            before, "model", "reference_adapter"));
    return note(run, lathe__weights_check(run), before, "model", "path");
}

static lathe_status prepare_data(lathe_run *run)
{
    int64_t before = n_errors(run);
    if (run->set.datasets || !lathe__run_takes_batches(run))
        LATHE_TRY(note(run, lathe__run_data(run), before, "data", "datasets"));
    LATHE_TRY(so_far(run));
    before = n_errors(run);
    LATHE_TRY(note(run, lathe__run_settle_length(run), before, "scheduler", "name"));
    if (lathe__run_takes_batches(run))
        return LATHE_OK;
    before = n_errors(run);
    return note(run, lathe__resume_check(run), before, "checkpoint", "resume");
}

/* Checks the schedule as far as possible without the data: a length from epochs is not known. */
static lathe_status check_length_offline(lathe_run *run)
{
    const int64_t own = lathe_config_int(run->config, "scheduler", "total_steps");
    const int64_t total = run->set.max_steps > 0 ? run->set.max_steps : own, before = n_errors(run);
    return total > 0 ? note(run, lathe__run_check_length(run, total), before, "scheduler", "name")
                     : LATHE_OK;
}

static lathe_status check_datasets(lathe_run *run)
{
    LATHE_TRY(lathe__data_check(run));
    return lathe__idle_keys_warn(run);
}

/* Refuses what the run would refuse when it has joined other ranks, which are not there during a
 * check. */
static lathe_status check_as_rank(lathe_run *run)
{
    if (run->open.as_ranks < 2)
        return LATHE_OK;
    run->programs.n_ranks = run->open.as_ranks;
    return note(run, lathe__run_check_ranks(run), n_errors(run), "stage", "name");
}

static lathe_status check_parallel(lathe_run *run)
{
    const int64_t before = n_errors(run);
    LATHE_TRY(note(run, lathe__parallel_check(run), before, "parallel", "shard"));
    return run->ranks ? so_far(run) : LATHE_OK;
}

lathe_status lathe__run_prepare(lathe_run *run)
{
    LATHE_TRY(lathe__run_configure(run));
    LATHE_TRY(prepare_parts(run));
    if (lathe__run_joins(run)) {
        LATHE_TRY(so_far(run));
        LATHE_TRY(note(run, lathe__run_join(run), n_errors(run), "collective", "name"));
        LATHE_TRY(so_far(run));
    } else {
        LATHE_TRY(note(run, lathe__run_check_engine(run), n_errors(run), "collective", "name"));
        LATHE_TRY(check_as_rank(run));
    }
    LATHE_TRY(check_parallel(run));
    const int64_t in_parts = n_errors(run);
    if (run->set.datasets && run->parts.stage.component && !lathe__run_is_offline(run))
        LATHE_TRY(note(run, check_datasets(run), in_parts, "data", "datasets"));
    if (run->set.tokenizer_train && !lathe__run_is_offline(run))
        LATHE_TRY(so_far(run)); /* training a tokenizer takes long */
    const int64_t before = n_errors(run);
    LATHE_TRY(
        note(run, lathe__run_first_alone(run, lathe__run_folders_check), before, "model", "path"));
    if ((run->set.tokenizer_train == NULL || !lathe__run_is_offline(run)) &&
        !tokenizer_is_elsewhere(run))
        LATHE_TRY(prepare_tokenizer(run));
    if (in_parts == 0 && n_errors(run) == before && !lathe__run_is_offline(run))
        LATHE_TRY(note(run, lathe__choose_shard(run), before, "parallel", "shard"));
    if (in_parts == 0 && n_errors(run) == before && !model_is_elsewhere(run))
        LATHE_TRY(prepare_model(run));
    if (run->set.max_steps > 0 || lathe__run_is_offline(run))
        LATHE_TRY(in_parts == 0 ? check_length_offline(run) : LATHE_OK);
    const int64_t then = n_errors(run);
    if (!lathe__run_takes_batches(run) && !lathe__run_is_dry(run))
        LATHE_TRY(note(run, lathe_checkpoint_refuse_mixing(lathe__run_saved(run)), then,
                       "checkpoint", "resume"));
    if (!lathe__run_takes_batches(run) && !lathe__run_is_dry(run) && !lathe__run_is_offline(run))
        LATHE_TRY(note(run, lathe__folder_check(run), then, "checkpoint", "dir"));
    LATHE_TRY(so_far(run));
    if (lathe__run_is_offline(run))
        return LATHE_OK;
    LATHE_TRY(prepare_plan(run));
    LATHE_TRY(so_far(run));
    LATHE_TRY(prepare_data(run));
    LATHE_TRY(so_far(run));
    if (lathe__run_takes_batches(run) || lathe__run_is_dry(run))
        return LATHE_OK;
    LATHE_TRY(note(run, lathe__disk_check(run), n_errors(run), "checkpoint", "dir"));
    return so_far(run);
}

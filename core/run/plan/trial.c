/* From the run file to the plan of a run, and the plans of its trials: no weights, no data.
 *
 * Choosing a method plans runs with other settings, each of which is configured again, so both are
 * in this room. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "config/config_changes.h"
#include "run/decide/dry_run.h"
#include "run/decide/run_check.h"
#include "run/folder/begin_adapter.h"
#include "run/folder/begin_renderer.h"
#include "run/folder/named_open.h"
#include "run/folder/reference_adapter.h"
#include "run/folder/run_folders.h"
#include "run/parts/iteration.h"
#include "run/parts/run_parts.h"
#include "run/plan/fit.h"
#include "run/plan/methods.h"
#include "run/plan/trial.h"

#define KIND_BIT(kind) (1u << (kind))

/* Component kinds whose defaults apply if the file does not name them. */
static uint32_t kinds_of(const lathe_run *run)
{
    const uint32_t infer = KIND_BIT(LATHE_KIND_DEVICE) | KIND_BIT(LATHE_KIND_ATTENTION) |
                           KIND_BIT(LATHE_KIND_RENDERER);
    if (lathe__run_infers(run))
        return infer;
    if (lathe__run_evaluates(run))
        return infer | KIND_BIT(LATHE_KIND_STAGE);
    return infer | KIND_BIT(LATHE_KIND_STAGE) | KIND_BIT(LATHE_KIND_ADAPTER) |
           KIND_BIT(LATHE_KIND_OPTIMIZER) | KIND_BIT(LATHE_KIND_SCHEDULER) |
           KIND_BIT(LATHE_KIND_QUANT) | KIND_BIT(LATHE_KIND_COLLECTIVE);
}

/* Reads the configuration, and the settings from it. */
static lathe_status read_config(lathe_run *run, uint32_t wanted, lathe_diags *diags)
{
    LATHE_TRY(lathe_config_make(run->inputs->file, &run->decided.edits, wanted, run->registry,
                                diags, &run->config));
    lathe_settings_read(run->config, &run->set);
    lathe_log_set_level(run->set.log_level);
    return lathe__run_folders_settle(run);
}

static lathe_status load_config(lathe_run *run, lathe_diags *diags)
{
    uint32_t wanted = kinds_of(run) | LATHE_CONFIG_MODEL;
    wanted |= !lathe__run_only_plans(run) && !lathe__run_is_unmade(run) ? LATHE_CONFIG_FILES : 0;
    wanted |= !lathe__run_infers(run) ? LATHE_CONFIG_DATA : 0;
    wanted |= lathe__run_is_offline(run) ? LATHE_CONFIG_ELSEWHERE : 0;
    wanted |= lathe__run_only_reads_data(run) ||
                      (lathe__run_trains(run) && !lathe__run_takes_batches(run))
                  ? LATHE_CONFIG_TRAIN
                  : 0;
    wanted |= run->decided.is_other_method ? LATHE_CONFIG_OTHER_METHOD : 0;
    return read_config(run, wanted, diags);
}

/* Makes the configuration again, with the edits that were decided since. */
static lathe_status reload_config(lathe_run *run, lathe_diags *diags)
{
    run->config = NULL;
    lathe_diags_fini(diags); /* the same warnings follow */
    *diags = (lathe_diags){0};
    return load_config(run, diags);
}

/* Finds the adapter that the run begins with. Without the name of its method its settings in the
 * file are not known yet, so the configuration is read without checking them. *out_why: what was
 * wrong elsewhere; reading the configuration again says it at its place. */
static lathe_status find_adapter(lathe_run *run, lathe_begin_adapter *begin, const char **out_why)
{
    lathe_diags unsaid = {0};
    lathe_status status = read_config(run, LATHE_CONFIG_OTHER_METHOD, &unsaid);
    *begin = (lathe_begin_adapter){.dir = NULL};
    *out_why = NULL;
    if (status == LATHE_OK) {
        status = lathe__begin_adapter_find(run, begin);
    } else if (status == LATHE_E_CONFIG) {
        *out_why = lathe_arena_strdup(&run->arena, lathe_error_message());
        status = *out_why ? LATHE_OK : LATHE_E_NOMEM;
    }
    lathe_config_destroy(run->config);
    run->config = NULL;
    lathe_diags_fini(&unsaid);
    return status;
}

/* Reads the configuration, with the settings of the adapter that the run begins with. */
static lathe_status load_with_adapter(lathe_run *run, lathe_diags *diags)
{
    lathe_begin_adapter begin;
    const char *why = NULL;
    LATHE_TRY(find_adapter(run, &begin, &why));
    LATHE_TRY(load_config(run, diags));
    if (why) /* it passed in between: a file that could not be read */
        return lathe_error(LATHE_E_CONFIG, "%s", why);
    if (begin.dir == NULL)
        return LATHE_OK;
    lathe_config *const first = run->config;
    LATHE_TRY(lathe__begin_adapter_take(run, &begin));
    lathe_status status = reload_config(run, diags);
    if (status == LATHE_OK)
        status = lathe__begin_adapter_check(run, first, &begin);
    lathe_config_destroy(first);
    return status;
}

/* Takes the renderer that the model's folder remembers, and reads the configuration again. */
static lathe_status settle_renderer(lathe_run *run, lathe_diags *diags)
{
    int changed;
    LATHE_TRY(lathe__begin_renderer(run, &changed));
    if (!changed)
        return LATHE_OK;
    lathe_config_destroy(run->config);
    return reload_config(run, diags);
}

/* Replaces adapter.name = "auto" by a method, and reads the configuration again. */
static lathe_status settle_method(lathe_run *run, lathe_diags *diags)
{
    if (!lathe_config_part(run->config, LATHE_KIND_ADAPTER)->is_auto)
        return LATHE_OK;
    LATHE_TRY(lathe__methods_choose(run));
    lathe_config_destroy(run->config);
    return reload_config(run, diags);
}

lathe_status lathe__run_configure(lathe_run *run)
{
    lathe_diags own = {0}, *const diags = run->open.diags ? run->open.diags : &own;
    LATHE_TRY(lathe__fit_floor(1));
    if (run->inputs->registry == NULL)
        LATHE_TRY(lathe_registry_create(&run->inputs->registry));
    run->registry = run->inputs->registry;
    lathe_status status = load_with_adapter(run, diags);
    if (status != LATHE_OK)
        goto out;
    /* the run that is tried has settled it */
    if (!run->open.is_trial && (status = settle_renderer(run, diags)) != LATHE_OK)
        goto out;
    if ((status = settle_method(run, diags)) != LATHE_OK)
        goto out;
    if (run->decided.base_warning)
        lathe__run_warn(run, "model", "adapter", "%s", run->decided.base_warning);
    lathe__run_log_warnings(&own);
out:
    lathe_diags_fini(&own);
    LATHE_TRY(status);
    if (lathe__run_is_dry(run))
        LATHE_TRY(lathe__dry_run_begin(run));
    lathe_parallel_init(run->set.threads);
    return lathe__fit_floor(lathe_parallel_threads());
}

/* The plan needs a tokenizer only if nothing else gives the vocabulary size. */
static int needs_tokenizer(const lathe_run *run)
{
    return !lathe__run_only_plans(run) ||
           (run->set.add_tokens.n > 0 && run->set.tokenizer_train == NULL) ||
           (run->set.model_path == NULL && run->set.tokenizer_train == NULL &&
            !lathe_config_is_set(run->config, "model", "vocab_size"));
}

lathe_status lathe__run_plan_stages(lathe_run *run)
{
    LATHE_TRY(lathe__run_configure(run));
    LATHE_TRY(lathe__run_components(run));
    LATHE_TRY(lathe__reference_adapter_open(run));
    LATHE_TRY(lathe__named_adapters_open(run));
    if (lathe__run_evaluates(run))
        LATHE_TRY(lathe__iteration_check(run));
    if (!lathe__run_only_plans(run))
        LATHE_TRY(lathe__run_folders_check(run));
    if (needs_tokenizer(run))
        LATHE_TRY(lathe__run_tokenizer(run));
    LATHE_TRY(lathe__run_model(run));
    LATHE_TRY(lathe__run_plan(run));
    return lathe__run_has_step(run) ? lathe__figure_check_best(run) : LATHE_OK;
}

int32_t lathe__run_alike(const lathe_run *run)
{
    if (lathe__run_has_step(run))
        return LATHE_OPEN_PLAN;
    if (lathe__run_only_reads_data(run))
        return LATHE_OPEN_DATA;
    return lathe__run_evaluates(run) ? LATHE_OPEN_EVALUATE : LATHE_OPEN_INFER;
}

/* Makes a run that shares the run file and the plugins of another. */
static lathe_status create_trial(const lathe_run *run, const lathe_trial *how,
                                 const lathe_edits *edits, lathe_run **out)
{
    lathe_run *const made = *out = calloc(1, sizeof **out);
    if (made == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for a plan");
    made->inputs = lathe_run_inputs_share(run->inputs);
    made->open.path = run->open.path;
    made->open.is_trial = 1;
    made->open.wants = how->wants;
    made->decided.is_other_method = how->is_other_method;
    made->open.as_ranks = how->as_ranks;
    lathe_edits_take(&made->decided.edits, &run->decided.edits,
                     how->drops_auto ? LATHE_BY_AUTO : 0);
    if (edits)
        lathe_edits_take(&made->decided.edits, edits, 0);
    lathe_edits_text(&made->decided.edits, LATHE_BY_TRIAL, "log.level", "error");
    return made->decided.edits.status == LATHE_OK
               ? LATHE_OK
               : lathe_error(LATHE_E_NOMEM, "no memory for a plan");
}

lathe_status lathe__run_try(const lathe_run *run, const lathe_trial *how, const lathe_edits *edits,
                            lathe_run **out)
{
    lathe_run *made = NULL;
    lathe_status status = create_trial(run, how, edits, &made);
    if (status == LATHE_OK)
        status = lathe__run_plan_stages(made);
    lathe_log_set_level(run->set.log_level);
    if (status != LATHE_OK)
        lathe_run_close(made);
    *out = status == LATHE_OK ? made : NULL;
    return status;
}

/* Opens and closes a run, stage by stage; each stage needs only the ones before it.
 *
 * Above 500 lines because the order of all stages, and of what closes them, is read here. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/map.h"
#include "base/parallel.h"
#include "chat/template/chat_template.h"
#include "checkpoint/state/adapter_file.h"
#include "checkpoint/state/checkpoint.h"
#include "checkpoint/state/checkpoint_folder.h"
#include "checkpoint/state/checkpoint_image.h"
#include "config/config_changes.h"
#include "generate/draft_model.h"
#include "generate/generator.h"
#include "parallel/ranks/extents.h"
#include "parallel/ranks/failure_report.h"
#include "parallel/ranks/grad_buckets.h"
#include "run/decide/dry_run.h"
#include "run/decide/run_check.h"
#include "run/decide/run_length.h"
#include "run/folder/begin_adapter.h"
#include "run/folder/begin_renderer.h"
#include "run/folder/named_open.h"
#include "run/folder/reference_adapter.h"
#include "run/folder/run_folders.h"
#include "run/open/data_check.h"
#include "run/open/opening.h"
#include "run/open/settings_check.h"
#include "run/parts/iteration.h"
#include "run/parts/reward_model.h"
#include "run/parts/rollout_noise.h"
#include "run/parts/run_heads.h"
#include "run/parts/run_parts.h"
#include "run/parts/run_ranks.h"
#include "run/parts/stored_teacher.h"
#include "run/parts/teacher.h"
#include "run/plan/fit_search.h"
#include "run/plan/methods.h"
#include "run/plan/trial.h"
#include "run/state/run_saved.h"

/* Computes the length of the run from epochs, and checks the schedule against it. */
lathe_status lathe__run_settle_length(lathe_run *run)
{
    const lathe_scheduler_v1 *scheduler = run->parts.scheduler.table;
    if (run->set.max_steps == 0 && run->data.loader) {
        lathe__run_count_epochs(run);
        lathe__settings_check_pause(run);
    }
    LATHE_TRY(lathe__run_check_length(run, run->set.max_steps));
    if (LATHE_HAS(scheduler, init))
        scheduler->init(run->parts.scheduler.self, run->opt.base_lr, run->at.scheduler_state);
    return LATHE_OK;
}

/* The stages for the data alone. */
static lathe_status data_stages(lathe_run *run)
{
    LATHE_TRY(lathe__run_configure(run));
    LATHE_TRY(lathe__run_components(run));
    if (run->set.datasets && run->parts.stage.component)
        LATHE_TRY(lathe__data_check(run));
    LATHE_TRY(lathe__run_tokenizer(run));
    return lathe__run_data(run);
}

/* The stages for a run that does not train, up to the data. */
static lathe_status computing_stages(lathe_run *run)
{
    LATHE_TRY(lathe__run_plan_stages(run));
    if (lathe__run_only_plans(run))
        return LATHE_OK;
    if (lathe__run_evaluates(run))
        LATHE_TRY(lathe__data_check(run));
    LATHE_TRY(lathe__run_fits(run));
    return lathe__run_evaluates(run) ? lathe__run_data(run) : LATHE_OK;
}

/* Turns a status into a refusal that the user can correct, so that every command has the exit code
 * of lathe validate. Failures of the machine keep their status, and so do statuses that already
 * name the user's mistake. */
static lathe_status as_refusal(lathe_status status)
{
    switch (status) {
    case LATHE_OK:
    case LATHE_E_NOMEM:
    case LATHE_E_DEVICE:
    case LATHE_E_INTERRUPTED:
    case LATHE_E_ARG:
    case LATHE_E_PARSE:
    case LATHE_E_NOT_FOUND:
        return status;
    default:
        return LATHE_E_CONFIG;
    }
}

static lathe_status all_stages(lathe_run *run)
{
    if (lathe__run_only_reads_data(run))
        return as_refusal(data_stages(run));
    if (lathe__run_trains(run))
        LATHE_TRY(lathe__run_prepare(run));
    else
        LATHE_TRY(as_refusal(computing_stages(run)));
    if (lathe__run_only_plans(run))
        return LATHE_OK;
    run->open.diags = NULL; /* later failures are the machine's */
    LATHE_TRY(lathe__run_place(run));
    if (lathe__run_makes_logprobs(run))
        return lathe__teacher_load(run);
    run->checkpoints.weights_wait = lathe__checkpoint_brings_all(lathe__run_saved(run));
    return run->checkpoints.weights_wait ? LATHE_OK : lathe__run_weights(run);
}

/* Runs the stages. Weights, vocabularies and data are mapped files; a file that became shorter
 * meanwhile is reported here. */
static lathe_status open_stages(lathe_run *run)
{
    const lathe_status status = all_stages(run);
    const lathe_status read = lathe_maps_check();
    return read != LATHE_OK ? read : status;
}

/* Makes a run that is not opened yet. After an error, *out is NULL. */
static lathe_status create(const lathe_run_source *from, int32_t wants, lathe_run **out)
{
    lathe_run *const run = *out = calloc(1, sizeof *run);
    if (!run)
        return lathe_error(LATHE_E_NOMEM, "no memory for a run");
    run->open.wants = wants;
    lathe_status status = LATHE_OK;
    if (from->inputs)
        run->inputs = lathe_run_inputs_share(from->inputs);
    else
        status = lathe_run_inputs_create(from->path, from->edits, &run->inputs);
    if (from->inputs && from->edits) /* on top of the file that others read, too */
        lathe_edits_take(&run->decided.edits, from->edits, 0);
    if (status == LATHE_OK && run->decided.edits.status == LATHE_OK) {
        run->open.path = lathe_run_file_path(run->inputs->file);
        return LATHE_OK;
    }
    lathe_run_close(run);
    *out = NULL;
    return lathe_error(LATHE_E_NOMEM, "no memory for a run");
}

/* A run that failed after it had joined other ranks. Exchanges may be under way in its memory, and
 * the process ends (parallel/ranks/failure_report.h). */
static lathe_run *kept;

/* Returns the run, or closes it after an error. */
static lathe_status opened(lathe_run *run, lathe_status status, lathe_run **out)
{
    *out = status == LATHE_OK ? run : NULL;
    if (status == LATHE_OK)
        return LATHE_OK;
    if (run && run->ranks) {
        lathe__dry_run_end(run);
        lathe_ranks_abandon(run->ranks);
        kept = run;
    } else {
        lathe_run_close(run);
    }
    return status;
}

lathe_status lathe_run_open_training(const lathe_run_source *from, int32_t is_dry,
                                     lathe_diags *diags, lathe_run **out)
{
    lathe_run *run = NULL;
    LATHE_TRY(create(from, is_dry ? LATHE_OPEN_DRY_RUN : LATHE_OPEN_TRAIN, &run));
    run->open.diags = diags;
    return opened(run, open_stages(run), out);
}

lathe_status lathe_run_open_for(const lathe_run_source *from, int32_t wants, lathe_run **out)
{
    lathe_run *run = NULL;
    if (wants == LATHE_OPEN_TRAIN) {
        lathe_diags diags = {0};
        const lathe_status status = lathe_run_open_training(from, 0, &diags, out);
        if (status == LATHE_OK)
            lathe__run_log_warnings(&diags);
        lathe_diags_fini(&diags);
        return status;
    }
    LATHE_TRY(create(from, wants, &run));
    return opened(run, open_stages(run), out);
}

lathe_status lathe_run_open_named(const lathe_run_source *from, lathe_named_adapters *named,
                                  lathe_run **out)
{
    lathe_run *run = NULL;
    const lathe_status status = create(from, LATHE_OPEN_INFER, &run);
    if (status != LATHE_OK) {
        lathe__named_adapters_destroy(named);
        return status;
    }
    run->named = named;
    return opened(run, open_stages(run), out);
}

lathe_status lathe_run_open_logprobs(const lathe_run_source *from, int32_t top_k,
                                     double temperature, lathe_run **out)
{
    lathe_run *run = NULL;
    LATHE_TRY(create(from, LATHE_OPEN_LOGPROBS, &run));
    run->open.top_k = top_k;
    run->open.top_temperature = temperature;
    return opened(run, open_stages(run), out);
}

/* Keeps what a run that begins with this one's adapter must agree with. */
static lathe_status keep_adapter(lathe_run *run, lathe_run_product *out)
{
    json_t *config = NULL;
    lathe_buffer tensors = LATHE_BUFFER_INIT;
    LATHE_TRY(lathe_config_object(run->config, &config));
    out->settings = json_dumps(config, JSON_REAL_PRECISION(17));
    json_decref(config);
    lathe_status status = out->settings ? LATHE_OK : LATHE_E_NOMEM;
    if (status == LATHE_OK && run->params.n > 0)
        status = lathe__adapter_file_list(lathe__run_saved(run), &tensors);
    out->tensors = status == LATHE_OK && tensors.data ? strdup(tensors.data) : NULL;
    lathe_buffer_fini(&tensors);
    return status;
}

static lathe_status describe_product(lathe_run *run, lathe_run_product *out)
{
    const lathe_instance *part = &run->parts.adapter;
    const lathe_adapter_v1 *adapter = part->component ? part->table : NULL;
    const lathe_saved_state *saved = lathe__run_saved(run);
    const int32_t is_frozen =
        LATHE_HAS(adapter, base_is_frozen) && adapter->base_is_frozen(part->self);
    *out = (lathe_run_product){/* a model that is not made yet has no parameters to ask */
                               .saves_model = run->params.n > 0 ? lathe__checkpoint_has_model(saved)
                                                                : saved->merges || !is_frozen,
                               .n_labels = lathe__run_n_labels(run),
                               .has_average = run->set.weight_average != LATHE_AVERAGE_NONE ||
                                              lathe_optimizer_averages(&run->parts.optimizer)};
    return out->saves_model ? LATHE_OK : keep_adapter(run, out);
}

void lathe_run_product_fini(lathe_run_product *product)
{
    free(product->settings);
    free(product->tensors);
    product->settings = product->tensors = NULL;
}

static int has_line(const char *text, const char *line, size_t n)
{
    for (const char *at = text; at != NULL && *at; at = strchr(at, '\n') + 1)
        if (strncmp(at, line, n) == 0)
            return 1;
    return 0;
}

/* Refuses a method whose file has other tensors than the adapter that the run will begin with. */
static lathe_status check_tensors(lathe_run *run, const lathe_beginning *begins)
{
    lathe_buffer own = LATHE_BUFFER_INIT;
    const char *made = begins->product->tensors;
    const char *name = lathe_config_part(run->config, LATHE_KIND_ADAPTER)->name;
    if (made == NULL || run->params.n == 0)
        return LATHE_OK;
    lathe_status status = lathe__adapter_file_list(lathe__run_saved(run), &own);
    const char *text = own.data ? own.data : "";
    if (status == LATHE_OK && own.len == 0)
        status = lathe__run_refuse(run, "adapter", "name",
                                   "%s will hold an adapter, but adapter \"%s\" has no parameters "
                                   "of its own: leave adapter.name out to go on with the adapter",
                                   begins->what, name);
    for (int k = 0; k < 2; k++) {
        const char *at = k == 0 ? text : made, *in = k == 0 ? made : text;
        for (; status == LATHE_OK && *at; at = strchr(at, '\n') + 1) {
            const size_t n = strcspn(at, "\n") + 1;
            if (!has_line(in, at, n))
                status = lathe__run_refuse(
                    run, "adapter", "name",
                    "adapter \"%s\" with its settings %s the tensor %.*s, which the adapter of %s "
                    "will %s: train both with the same method, or leave adapter.name out",
                    name, k == 0 ? "needs" : "does not take", (int)n - 1, at, begins->what,
                    k == 0 ? "not have" : "have");
        }
    }
    lathe_buffer_fini(&own);
    return status;
}

lathe_status lathe_run_check(const lathe_run_source *from, int32_t wants, int32_t n_ranks,
                             const lathe_beginning *begins, lathe_diags *diags,
                             lathe_run_product *out_product)
{
    lathe_run *run = NULL;
    LATHE_TRY(create(from, wants, &run));
    run->open.diags = diags;
    run->open.as_ranks = n_ranks;
    if (begins)
        run->open.awaits = (lathe_awaited){begins->product ? begins->product->settings : NULL,
                                           begins->what, begins->reward};
    lathe_status status = lathe__run_prepare(run);
    if (begins && begins->product && status == LATHE_OK)
        status = check_tensors(run, begins);
    if (out_product && status == LATHE_OK)
        status = describe_product(run, out_product);
    run->open.diags = NULL;
    lathe_run_close(run);
    return status;
}

lathe_status lathe_run_open(const char *config_path, int32_t n_overrides,
                            const char *const *overrides, lathe_run **out)
{
    lathe_run *run = NULL;
    lathe_edits options = {.n = 0};
    const lathe_run_source from = {config_path, &options, NULL};
    lathe_status status = lathe_edits_parse(&options, overrides, n_overrides);
    if (status == LATHE_OK)
        status = create(&from, LATHE_OPEN_BATCHES, &run);
    lathe_edits_fini(&options);
    return opened(run, status == LATHE_OK ? open_stages(run) : status, out);
}

void lathe_set_log(lathe_log_fn fn, void *arg)
{
    lathe_log_set_sink(fn, arg);
}

const char *lathe_last_error(void)
{
    return lathe_error_message();
}

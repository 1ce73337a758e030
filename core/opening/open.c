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
#include "checkpoint/adapter_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_image.h"
#include "config/config_changes.h"
#include "generate/draft_model.h"
#include "generate/generator.h"
#include "opening/begin_adapter.h"
#include "opening/begin_renderer.h"
#include "opening/data_check.h"
#include "opening/dry_run.h"
#include "opening/fit_search.h"
#include "opening/methods.h"
#include "opening/named_open.h"
#include "opening/opening.h"
#include "opening/reference_adapter.h"
#include "opening/run_folders.h"
#include "opening/settings_check.h"
#include "opening/trial.h"
#include "ranks/extents.h"
#include "ranks/failure_report.h"
#include "ranks/grad_buckets.h"
#include "run/iteration.h"
#include "run/reward_model.h"
#include "run/rollout_noise.h"
#include "run/run_check.h"
#include "run/run_heads.h"
#include "run/run_length.h"
#include "run/run_ranks.h"
#include "run/run_saved.h"
#include "run/stored_teacher.h"
#include "run/teacher.h"
#include "template/chat_template.h"

#define KIND_BIT(kind) (1u << (kind))

/* Component kinds whose defaults apply if the file does not name them. */
static uint32_t kinds_of(int32_t mode)
{
    const uint32_t infer = KIND_BIT(LATHE_KIND_DEVICE) | KIND_BIT(LATHE_KIND_ATTENTION) |
                           KIND_BIT(LATHE_KIND_RENDERER);
    if (mode == LATHE_OPEN_INFER)
        return infer;
    if (mode == LATHE_OPEN_EVALUATE)
        return infer | KIND_BIT(LATHE_KIND_STAGE);
    return infer | KIND_BIT(LATHE_KIND_STAGE) | KIND_BIT(LATHE_KIND_ADAPTER) |
           KIND_BIT(LATHE_KIND_OPTIMIZER) | KIND_BIT(LATHE_KIND_SCHEDULER) |
           KIND_BIT(LATHE_KIND_QUANT) | KIND_BIT(LATHE_KIND_COLLECTIVE);
}

/* "section.key=value" -> key and value. */
static lathe_status split_overrides(lathe_arena *arena, int32_t n, const char *const *texts,
                                    lathe_override **out)
{
    lathe_override *list = lathe_arena_alloc(arena, (n + 1) * (int64_t)sizeof *list);
    if (!list)
        return LATHE_E_NOMEM;
    for (int32_t i = 0; i < n; i++) {
        const char *equals = strchr(texts[i], '=');
        if (!equals)
            return lathe_error(LATHE_E_ARG, "override '%s' is not of the form section.key=value",
                               texts[i]);
        list[i].key = lathe_arena_strndup(arena, texts[i], equals - texts[i]);
        list[i].value = lathe_arena_strdup(arena, equals + 1);
        if (!list[i].key || !list[i].value)
            return LATHE_E_NOMEM;
    }
    *out = list;
    return LATHE_OK;
}

/* Reads the configuration, and the settings from it. */
static lathe_status read_config(lathe_run *run, uint32_t wanted, lathe_diags *diags)
{
    LATHE_TRY(lathe_config_make(run->inputs->file, &run->open.edits, wanted, run->registry, diags,
                                &run->config));
    lathe_settings_read(run->config, &run->set);
    lathe_log_set_level(run->set.log_level);
    return lathe__run_folders_settle(run);
}

static lathe_status load_config(lathe_run *run, lathe_diags *diags)
{
    uint32_t wanted = kinds_of(run->open.mode) | LATHE_CONFIG_MODEL;
    wanted |= run->open.mode != LATHE_OPEN_PLAN && !run->open.is_unmade ? LATHE_CONFIG_FILES : 0;
    wanted |= run->open.mode != LATHE_OPEN_INFER ? LATHE_CONFIG_DATA : 0;
    wanted |= run->open.is_offline ? LATHE_CONFIG_ELSEWHERE : 0;
    wanted |= run->open.mode == LATHE_OPEN_DATA ||
                      (run->open.mode == LATHE_OPEN_TRAIN && !run->open.data_is_optional)
                  ? LATHE_CONFIG_TRAIN
                  : 0;
    wanted |= run->open.is_other_method ? LATHE_CONFIG_OTHER_METHOD : 0;
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
    if (!begin.dir)
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
    if (!run->inputs->registry)
        LATHE_TRY(lathe_registry_create(&run->inputs->registry));
    run->registry = run->inputs->registry;
    lathe_status status = load_with_adapter(run, diags);
    if (status == LATHE_OK && !run->open.is_trial) /* the run that is tried has settled it */
        status = settle_renderer(run, diags);
    if (status == LATHE_OK)
        status = settle_method(run, diags);
    if (status == LATHE_OK && run->open.base_warning)
        lathe__run_warn(run, "model", "adapter", "%s", run->open.base_warning);
    if (status == LATHE_OK)
        lathe__run_log_warnings(&own);
    lathe_diags_fini(&own);
    LATHE_TRY(status);
    if (run->open.is_dry)
        LATHE_TRY(lathe__dry_run_begin(run));
    lathe_parallel_init(run->set.threads);
    return lathe__fit_floor(lathe_parallel_threads());
}

/* The plan needs a tokenizer only if nothing else gives the vocabulary size. */
static int needs_tokenizer(const lathe_run *run)
{
    return run->open.mode != LATHE_OPEN_PLAN ||
           (!run->set.model_path && !run->set.tokenizer_train &&
            !lathe_config_is_set(run->config, "model", "vocab_size"));
}

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

/* The stages up to the plan: no weights, no data. */
static lathe_status plan_stages(lathe_run *run)
{
    LATHE_TRY(lathe__run_configure(run));
    LATHE_TRY(lathe__run_components(run));
    LATHE_TRY(lathe__reference_adapter_open(run));
    LATHE_TRY(lathe__named_adapters_open(run));
    if (run->open.mode == LATHE_OPEN_EVALUATE)
        LATHE_TRY(lathe__iteration_check(run));
    if (run->open.mode != LATHE_OPEN_PLAN)
        LATHE_TRY(lathe__run_folders_check(run));
    if (needs_tokenizer(run))
        LATHE_TRY(lathe__run_tokenizer(run));
    LATHE_TRY(lathe__run_model(run));
    LATHE_TRY(lathe__run_plan(run));
    return run->open.mode <= LATHE_OPEN_TRAIN ? lathe__figure_check_best(run) : LATHE_OK;
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
    LATHE_TRY(plan_stages(run));
    if (run->open.mode == LATHE_OPEN_PLAN)
        return LATHE_OK;
    if (run->open.mode == LATHE_OPEN_EVALUATE)
        LATHE_TRY(lathe__data_check(run));
    LATHE_TRY(lathe__run_fits(run));
    return run->open.mode == LATHE_OPEN_EVALUATE ? lathe__run_data(run) : LATHE_OK;
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
    if (run->open.mode == LATHE_OPEN_DATA)
        return as_refusal(data_stages(run));
    if (run->open.mode == LATHE_OPEN_TRAIN)
        LATHE_TRY(lathe__run_prepare(run));
    else
        LATHE_TRY(as_refusal(computing_stages(run)));
    if (run->open.mode == LATHE_OPEN_PLAN)
        return LATHE_OK;
    run->open.diags = NULL; /* later failures are the machine's */
    LATHE_TRY(lathe__run_place(run));
    if (run->open.top_k > 0)
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
static lathe_status create(const char *path, const lathe_override *list, int32_t n, int32_t mode,
                           lathe_run **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return lathe_error(LATHE_E_NOMEM, "no memory for a run");
    (*out)->open.mode = mode == LATHE_OPEN_BATCHES   ? LATHE_OPEN_TRAIN
                        : mode == LATHE_OPEN_WEIGHTS ? LATHE_OPEN_INFER
                                                     : mode;
    (*out)->open.data_is_optional = mode == LATHE_OPEN_BATCHES;
    (*out)->open.computes_nothing = mode == LATHE_OPEN_WEIGHTS;
    const lathe_status status = lathe_run_inputs_create(path, list, n, &(*out)->inputs);
    if (status == LATHE_OK) {
        (*out)->open.path = lathe_run_file_path((*out)->inputs->file);
        return LATHE_OK;
    }
    lathe_run_close(*out);
    *out = NULL;
    return lathe_error(LATHE_E_NOMEM, "no memory for a run");
}

/* A run that failed after it had joined other ranks. Exchanges may be under way in its memory, and
 * the process ends (ranks/failure_report.h). */
static lathe_run *kept;

/* Returns the run, or closes it after an error. */
static lathe_status opened(lathe_run *run, lathe_status status, lathe_run **out)
{
    *out = status == LATHE_OK ? run : NULL;
    if (status == LATHE_OK)
        return LATHE_OK;
    if (run && run->ranks) {
        lathe__dry_run_end(run);
        lathe_ranks_forsake(run->ranks);
        kept = run;
    } else {
        lathe_run_close(run);
    }
    return status;
}

lathe_status lathe_run_open_training(const char *config_path, const lathe_override *overrides,
                                     int32_t n_overrides, int32_t is_dry, lathe_diags *diags,
                                     lathe_run **out)
{
    lathe_run *run = NULL;
    LATHE_TRY(create(config_path, overrides, n_overrides, LATHE_OPEN_TRAIN, &run));
    run->open.diags = diags;
    run->open.is_dry = is_dry;
    run->open.joins = 1;
    return opened(run, open_stages(run), out);
}

lathe_status lathe_run_open_mode(const char *config_path, const lathe_override *overrides,
                                 int32_t n_overrides, int32_t mode, lathe_run **out)
{
    lathe_run *run = NULL;
    if (mode == LATHE_OPEN_TRAIN) {
        lathe_diags diags = {0};
        const lathe_status status =
            lathe_run_open_training(config_path, overrides, n_overrides, 0, &diags, out);
        if (status == LATHE_OK)
            lathe__run_log_warnings(&diags);
        lathe_diags_fini(&diags);
        return status;
    }
    LATHE_TRY(create(config_path, overrides, n_overrides, mode, &run));
    return opened(run, open_stages(run), out);
}

lathe_status lathe_run_open_named(const lathe_override *overrides, int32_t n_overrides,
                                  lathe_named_adapters *named, lathe_run **out)
{
    lathe_run *run = NULL;
    const lathe_status status = create(NULL, overrides, n_overrides, LATHE_OPEN_INFER, &run);
    if (status != LATHE_OK) {
        lathe__named_adapters_destroy(named);
        return status;
    }
    run->named = named;
    return opened(run, open_stages(run), out);
}

lathe_status lathe_run_open_to_quantize(const lathe_override *overrides, int32_t n_overrides,
                                        lathe_run **out)
{
    lathe_run *run = NULL;
    LATHE_TRY(create(NULL, overrides, n_overrides, LATHE_OPEN_PLAN, &run));
    run->open.calibrates = 1;
    return opened(run, open_stages(run), out);
}

lathe_status lathe_run_open_logprobs(const char *config_path, const lathe_override *overrides,
                                     int32_t n_overrides, int32_t top_k, double temperature,
                                     lathe_run **out)
{
    lathe_run *run = NULL;
    LATHE_TRY(create(config_path, overrides, n_overrides, LATHE_OPEN_EVALUATE, &run));
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

lathe_status lathe_run_check(const char *config_path, const lathe_override *overrides,
                             int32_t n_overrides, int32_t how, int32_t n_ranks,
                             const lathe_beginning *begins, lathe_diags *diags,
                             lathe_run_product *out_product)
{
    lathe_run *run = NULL;
    LATHE_TRY(create(config_path, overrides, n_overrides, LATHE_OPEN_TRAIN, &run));
    run->open.diags = diags;
    run->open.is_offline = (how & LATHE_CHECK_OFFLINE) != 0;
    run->open.is_unmade = (how & LATHE_CHECK_UNMADE) != 0;
    run->open.reward_is_unmade = (how & LATHE_CHECK_REWARD_UNMADE) != 0;
    run->open.as_ranks = n_ranks;
    run->open.begins_settings = begins ? begins->product->settings : NULL;
    run->open.begins_what = begins ? begins->what : NULL;
    lathe_status status = lathe__run_prepare(run);
    if (begins && status == LATHE_OK)
        status = check_tensors(run, begins);
    if (out_product && status == LATHE_OK)
        status = describe_product(run, out_product);
    run->open.diags = NULL;
    lathe_run_close(run);
    return status;
}

/* Makes a run that shares the run file and the plugins of another. */
static lathe_status create_trial(const lathe_run *run, const lathe_trial *how,
                                 const lathe_edits *edits, lathe_run **out)
{
    lathe_run *const made = *out = calloc(1, sizeof **out);
    if (!made)
        return lathe_error(LATHE_E_NOMEM, "no memory for a plan");
    made->inputs = lathe_run_inputs_share(run->inputs);
    made->open.path = run->open.path;
    made->open.is_trial = 1;
    made->open.mode = how->mode;
    made->open.is_other_method = how->is_other_method;
    made->open.as_ranks = how->as_ranks;
    lathe_edits_take(&made->open.edits, &run->open.edits, how->drops_auto ? LATHE_BY_AUTO : 0);
    if (edits)
        lathe_edits_take(&made->open.edits, edits, 0);
    lathe_edits_text(&made->open.edits, LATHE_BY_TRIAL, "log.level", "error");
    return made->open.edits.status == LATHE_OK ? LATHE_OK
                                               : lathe_error(LATHE_E_NOMEM, "no memory for a plan");
}

lathe_status lathe__run_try(const lathe_run *run, const lathe_trial *how, const lathe_edits *edits,
                            lathe_run **out)
{
    lathe_run *made = NULL;
    lathe_status status = create_trial(run, how, edits, &made);
    if (status == LATHE_OK)
        status = plan_stages(made);
    lathe_log_set_level(run->set.log_level);
    return opened(made, status, out);
}

lathe_status lathe_run_open(const char *config_path, int32_t n_overrides,
                            const char *const *overrides, lathe_run **out)
{
    lathe_run *run = NULL;
    lathe_override *list = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_status status = split_overrides(&arena, n_overrides, overrides, &list);
    if (status == LATHE_OK)
        status = create(config_path, list, n_overrides, LATHE_OPEN_BATCHES, &run);
    if (status == LATHE_OK)
        run->open.joins = 1;
    lathe_arena_fini(&arena);
    return opened(run, status == LATHE_OK ? open_stages(run) : status, out);
}

static void close_program(lathe_machine *m, lathe_program *p)
{
    lathe_machine_free(m, LATHE_MEM_ACTIVATIONS, p->own_bytes, p->own_arena);
    lathe_program_fini(p);
}

void lathe_run_close(lathe_run *run)
{
    if (!run)
        return;
    lathe_generator_destroy(run->generator);
    lathe_draft_destroy(run->draft);
    lathe__reward_destroy(run);
    lathe__teacher_destroy(run);
    close_program(&run->machine, &run->programs.top);
    close_program(&run->machine, &run->programs.train);
    close_program(&run->machine, &run->programs.eval);
    close_program(&run->machine, &run->programs.logits);
    close_program(&run->machine, &run->programs.scoring);
    close_program(&run->machine, &run->programs.sampling);
    for (int32_t i = 0; i < run->programs.shorter.n; i++) {
        close_program(&run->machine, &run->programs.shorter.train[i]);
        close_program(&run->machine, &run->programs.shorter.eval[i]);
    }
    lathe_update_destroy(run->opt.update);
    if (run->programs.arena) {
        lathe_machine_recount(&run->machine, LATHE_MEM_SCRATCH, LATHE_MEM_ACTIVATIONS,
                              run->programs.arena_bytes - run->programs.activation_bytes);
        lathe_machine_free(&run->machine, LATHE_MEM_ACTIVATIONS, run->programs.arena_bytes,
                           run->programs.arena);
    }
    lathe_image_destroy(lathe__run_saved(run));
    lathe_row_kernels_fini(&run->opt.row_kernels);
    if (run->machine.dev) {
        lathe_machine_free(&run->machine, LATHE_MEM_STAGING, lathe__losses_bytes(run),
                           run->programs.losses);
        lathe__noise_close(run);
        lathe__iteration_close(run);
        lathe__run_close_buckets(run);
        lathe_staging_fini(&run->machine);
    }
    if (!lathe_ranks_are_forsaken()) {
        lathe_grad_buckets_destroy(run->buckets);
        lathe_extents_destroy(run->extents);
        lathe_rank_layout_destroy(run->layout);
        lathe_ranks_close(run->ranks);
    }
    lathe_store_fini(&run->store, run->machine.dev ? &run->machine : NULL);
    lathe_loader_destroy(run->data.loader);
    lathe_loader_destroy(run->data.validation);
    lathe__stored_close(run);
    lathe_shards_destroy(run->data.shards);
    lathe_shards_destroy(run->data.validation_shards);
    lathe_tokenizer_destroy(run->data.tokenizer);
    lathe_chat_template_destroy(run->data.chat);
    lathe_params_fini(&run->params);
    lathe_weight_origin_destroy(run->checkpoints.file.origin);
    lathe_model_config_fini(&run->model);
    lathe__named_adapters_destroy(run->named);
    lathe__run_components_fini(run);
    lathe_config_destroy(run->config);
    lathe_config_destroy(run->reference_config);
    lathe_run_inputs_release(run->inputs);
    lathe_edits_fini(&run->open.edits);
    lathe__dry_run_end(run);
    lathe_arena_fini(&run->arena);
    free(run);
}

const char *lathe_last_error(void)
{
    return lathe_error_message();
}

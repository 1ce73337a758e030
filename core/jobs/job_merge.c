/* Writes a model with adapters merged into its weights, and quantized if that is asked for. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/model_path.h"
#include "base/new_folder.h"
#include "base/stale.h"
#include "files/gguf/model_files.h"
#include "jobs/job.h"
#include "run/calibrate/quantized_model.h"
#include "run/folder/adapter_folder.h"
#include "run/merge/merged_model.h"
#include "run/open/opening.h"
#include "run/state/run_saved.h"
#include "session/model_word.h"
#include "session/open_model.h"
#include "session/which_weights.h"

_Static_assert((int)LATHE_JOB_MAX_ADAPTERS == (int)LATHE_MOST_MERGED,
               "as many as the merging takes");
_Static_assert((int)LATHE_JOB_COMBINE_CAT == (int)LATHE_COMBINE_CAT &&
                   (int)LATHE_JOB_COMBINE_LINEAR == (int)LATHE_COMBINE_LINEAR,
               "the same numbers");

/* A merge under way. */
typedef struct merging {
    const lathe_job_merge_config *config;
    const lathe_job_caller *caller;
    lathe_arena *arena;
    lathe_registry *registry; /* of all runs of the job */
    lathe_job job;
    const char *model;                       /* the folder of the weights */
    const char *adapters[LATHE_MOST_MERGED]; /* [config->n_adapters] their folders */
    int32_t is_named; /* 1: the only adapter names the model, or model.path does */
} merging;

/* The value of a setting as the caller typed it, the last one; NULL: none. */
static const char *setting(const merging *m, const char *key)
{
    const lathe_edits *edits = m->caller->settings;
    for (int32_t i = edits->n - 1; i >= 0; i--)
        if (strcmp(edits->list[i].key, key) == 0)
            return edits->list[i].value->s;
    return NULL;
}

/* ---- the folders ---- */

static lathe_status check_adapter(const char *dir, int32_t n_adapters)
{
    int32_t is_classifier = 0;
    char hint[LATHE_HUB_HINT];
    if (!lathe_folder_has_adapter(dir))
        return lathe_error(LATHE_E_CONFIG,
                           "%s: has no adapter_model.safetensors, so it is not an adapter folder%s",
                           dir, lathe_adapters_hint(dir, hint));
    LATHE_TRY(lathe_adapter_folder_is_classifier(dir, &is_classifier));
    if (is_classifier && n_adapters > 1)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: the adapter of a sequence classifier, such as a reward model "
                           "(task_type SEQ_CLS), has a score of its own, which is not added to "
                           "others: merge it alone",
                           dir);
    return LATHE_OK;
}

/* The name, up to ".tmp.PID", of the plain folder of which a quantized output is made. */
static const char *plain_start(const char *output, lathe_arena *arena)
{
    size_t n = strlen(output);
    while (n > 1 && output[n - 1] == '/')
        n--;
    return lathe_arena_printf(arena, "%.*s.merged", (int)n, output);
}

/* Finds the model, which may be the folder of a run. */
static lathe_status find_model(const merging *m, lathe_model_folder *out)
{
    const int32_t which = m->config->weights;
    LATHE_TRY(lathe_model_word_check_weights(m->config->model));
    /* the average of an adapter need not be one of its model, too */
    LATHE_TRY(lathe_which_weights_find(m->config->model,
                                       which == LATHE_WEIGHTS_TRAINING ? which : LATHE_WEIGHTS_AUTO,
                                       m->arena, out));
    if (out->has_model)
        return LATHE_OK;
    return lathe_error(LATHE_E_CONFIG, "%s: has no config.json, so it is not a model folder%s",
                       out->dir,
                       out->has_adapter ? ": the model comes first, then the adapter" : "");
}

/* An adapter beside the model is part of it: merging another one into the weights alone would lose
 * what it learnt. */
static lathe_status take_model(merging *m, const lathe_model_folder *model)
{
    const int is_own = m->config->n_adapters == 1 && strcmp(m->adapters[0], model->dir) == 0;
    if (model->has_adapter && !is_own)
        return lathe_model_folder_refuse_adapter(model);
    m->model = model->has_adapter ? model->dir : model->weights;
    return LATHE_OK;
}

static lathe_status find_adapter(merging *m, const char *word, const char **out)
{
    lathe_model_folder folder;
    char hint[LATHE_HUB_HINT];
    if (!lathe_path_is_dir(word))
        return lathe_error(LATHE_E_CONFIG, "%s: %s; expected the folder of an adapter%s", word,
                           lathe_path_exists(word) ? "is no folder" : "no such folder",
                           lathe_hub_hint(word, hint, sizeof hint));
    LATHE_TRY(lathe_model_folder_find(word, LATHE_WEIGHTS_AUTO, m->arena, &folder));
    *out = folder.dir;
    return check_adapter(folder.dir, m->config->n_adapters);
}

/* The model that the only adapter names: it is merged into its own base. */
static lathe_status find_named(merging *m)
{
    lathe_adapter_folder folder;
    LATHE_TRY(
        lathe_adapter_folder_read(m->adapters[0], setting(m, "model.path"), m->arena, &folder));
    m->model = folder.base;
    m->is_named = 1;
    return LATHE_OK;
}

/* Finds the folders of the model and of the adapters; each may be the folder of a run. */
static lathe_status find_folders(merging *m)
{
    const lathe_job_merge_config *c = m->config;
    lathe_model_folder model = {.dir = NULL};
    const char *left = plain_start(c->output, m->arena);
    if (!left)
        return LATHE_E_NOMEM;
    lathe_stale_clear(left); /* also where the output is whole, and a call was killed after that */
    LATHE_TRY(lathe_new_folder_check(c->output));
    if (c->model && setting(m, "model.path"))
        return lathe_error(LATHE_E_ARG,
                           "%smodel.path and the folder %s are given; expected only one of them",
                           m->caller->dash, c->model);
    if (c->model)
        LATHE_TRY(find_model(m, &model));
    for (int32_t i = 0; i < c->n_adapters; i++)
        LATHE_TRY(find_adapter(m, c->adapters[i], &m->adapters[i]));
    return c->model ? take_model(m, &model) : find_named(m);
}

/* ---- merging ---- */

static int is_of(const lathe_edit *one, const char *section)
{
    return strncmp(one->key, section, strlen(section)) == 0;
}

/* Whether the folder's weights are quantized already, so that [quant] would have no effect on it.
 */
static lathe_status is_quantized(const char *model, int *out)
{
    json_t *config = NULL;
    LATHE_TRY(lathe_model_json(model, "config.json", &config));
    *out = json_is_object(json_object_get(config, "quantization_config"));
    json_decref(config);
    return LATHE_OK;
}

/* Opens the adapter with the model as its base, a classifier's with stage rm. A plain base gets the
 * settings of [quant], so that they are checked before anything is written. A base that the adapter
 * names itself is left to the opening, which compares it with the recorded one. */
static lathe_status open_both(const merging *m, const char *adapter, lathe_run **out)
{
    const lathe_edits *given = m->caller->settings;
    int stored = 0;
    int32_t is_classifier = 0;
    lathe_edits edits = {.n = 0};
    LATHE_TRY(is_quantized(m->model, &stored));
    LATHE_TRY(lathe_adapter_folder_is_classifier(adapter, &is_classifier));
    for (int32_t i = 0; i < given->n; i++)
        if (!stored || !is_of(&given->list[i], "quant."))
            lathe_edits_add(&edits, &given->list[i]);
    if (!m->is_named)
        lathe_edits_text(&edits, LATHE_BY_COMMAND, "model.path", m->model);
    if (is_classifier)
        lathe_edits_text(&edits, LATHE_BY_COMMAND, "stage.name", "rm");
    const lathe_model_request ask = {
        .word = adapter, .edits = &edits, .weights = m->config->weights, .registry = m->registry};
    lathe_status status = edits.status;
    if (status == LATHE_OK)
        status = lathe_model_open(&ask, LATHE_OPEN_WEIGHTS, out);
    lathe_edits_fini(&edits);
    if (status == LATHE_E_SHAPE || status == LATHE_E_NOT_FOUND)
        return lathe_error_context(LATHE_E_CONFIG, "the adapter does not fit the model %s",
                                   m->model);
    return status;
}

/* Settings that the second step, which quantizes, needs too. */
static int is_for_quantizing(const lathe_edit *one)
{
    return is_of(one, "quant.") || is_of(one, "plugins.") || strcmp(one->key, "model.name") == 0 ||
           strcmp(one->key, "checkpoint.shard_size") == 0;
}

/* Quantizes the merged model in `from`, and writes it to the output. */
static lathe_status quantize(merging *m, const char *from, const lathe_made_from *parents,
                             int32_t n_parents, lathe_job_merge_result *out)
{
    const lathe_edits *given = m->caller->settings;
    lathe_run *run = NULL;
    lathe_quantized_model made;
    lathe_edits edits = {.n = 0};
    lathe_edits_text(&edits, LATHE_BY_COMMAND, "model.path", from);
    /* an adapter of its own, because weights that train are not quantized */
    lathe_edits_text(&edits, LATHE_BY_COMMAND, "adapter.name", "lora");
    lathe_edits_int(&edits, LATHE_BY_COMMAND, "data.seq_len", 2);
    for (int32_t i = 0; i < given->n; i++)
        if (is_for_quantizing(&given->list[i]))
            lathe_edits_add(&edits, &given->list[i]);
    lathe_status status = lathe__job_open_run(&edits, LATHE_OPEN_QUANTIZE, m->registry, &run);
    lathe_edits_fini(&edits);
    if (status != LATHE_OK)
        goto out;
    if (LATHE_HAS((const lathe_quant_v1 *)run->parts.quant.table, encode_calibrated)) {
        status = lathe_error(LATHE_E_CONFIG,
                             "format \"%s\" is calibrated on texts: merge without %squant.name, "
                             "and then use lathe quantize --calibration",
                             run->parts.quant.component->plugin->name, m->caller->dash);
        goto out;
    }
    status =
        lathe__quantized_model_write(run, NULL, parents, n_parents, m->config->output,
                                     lathe__job_part(&m->job, "quantize", 1.0), NULL, NULL, &made);
    if (status != LATHE_OK)
        goto out;
    out->n_quantized = made.n;
    out->bits = made.n_numbers > 0 ? 8.0 * (double)made.bytes / (double)made.n_numbers : 0.0;
    out->relative_error = made.relative_error;
out:
    lathe_run_close(run);
    return status;
}

/* Merges, and quantizes the result if quant.name asks for it: by way of a plain folder beside the
 * output, which is removed. */
static lathe_status write_merged(merging *m, const lathe_merge_part *parts,
                                 lathe_job_merge_result *out)
{
    const lathe_job_merge_config *c = m->config;
    if (parts[0].saved == NULL)
        return lathe_error(LATHE_E_ARG, "there is no adapter to merge");
    const char *format = setting(m, "quant.name");
    const int quantizes = format && strcmp(format, "none") != 0;
    const lathe_work_watch *watch = lathe__job_part(&m->job, "merge", quantizes ? 0.5 : 1.0);
    lathe_made_from parents[1 + LATHE_MOST_MERGED] = {{"model", parts[0].saved->model_path}};
    if (!quantizes)
        return lathe__merged_model_write(parts, c->n_adapters, c->combination, c->output, watch,
                                         &out->n_changed);
    const char *merged = plain_start(c->output, m->arena);
    const char *plain =
        merged ? lathe_arena_printf(m->arena, "%s.tmp.%ld", merged, (long)getpid()) : NULL;
    if (!plain)
        return LATHE_E_NOMEM;
    for (int32_t k = 0; k < c->n_adapters; k++)
        parents[1 + k] = (lathe_made_from){"adapter", parts[k].adapter};
    LATHE_TRY(lathe__merged_model_write(parts, c->n_adapters, c->combination, plain, watch,
                                        &out->n_changed));
    const lathe_status status = quantize(m, plain, parents, 1 + c->n_adapters, out);
    char why[1024];
    (void)snprintf(why, sizeof why, "%s", status == LATHE_OK ? "" : lathe_error_message());
    (void)lathe_dir_remove(plain);
    return status == LATHE_OK ? LATHE_OK : lathe_error(status, "%s", why);
}

/* Opens the adapters and merges them. */
static lathe_status merge(merging *m, lathe_job_merge_result *out)
{
    const lathe_job_merge_config *c = m->config;
    lathe_run *runs[LATHE_MOST_MERGED] = {NULL};
    lathe_merge_part parts[LATHE_MOST_MERGED] = {{NULL}};
    lathe_status status = LATHE_OK;
    for (int32_t i = 0; i < c->n_adapters && status == LATHE_OK; i++) {
        status = open_both(m, m->adapters[i], &runs[i]);
        if (status == LATHE_OK)
            parts[i] = (lathe_merge_part){lathe__run_saved(runs[i]), m->adapters[i],
                                          c->factors ? c->factors[i] : 1.0};
    }
    if (status == LATHE_OK)
        status = write_merged(m, parts, out);
    for (int32_t i = 0; i < c->n_adapters; i++)
        lathe_run_close(runs[i]);
    return status;
}

/* ---- the job ---- */

static lathe_status check(const lathe_job_merge_config *c, const char *dash)
{
    if (!c->output)
        return lathe_error(LATHE_E_ARG, "%soutput%s is missing: the folder for the merged model",
                           dash, dash[0] ? " DIR" : "");
    if (c->n_adapters < 1 || c->n_adapters > LATHE_MOST_MERGED || !c->adapters)
        return lathe_error(LATHE_E_ARG, "%d adapters; expected 1 to %d", c->n_adapters,
                           LATHE_MOST_MERGED);
    if (!c->model && c->n_adapters > 1)
        return lathe_error(LATHE_E_ARG, "several adapters need the model that they share");
    if (c->combination != LATHE_COMBINE_CAT && c->combination != LATHE_COMBINE_LINEAR)
        return lathe_error(LATHE_E_ARG, "combination is %d; expected LATHE_JOB_COMBINE_*",
                           c->combination);
    for (int32_t i = 0; i < c->n_adapters; i++) {
        if (!c->adapters[i])
            return lathe_error(LATHE_E_ARG, "adapters[%d] is NULL", i);
        if (c->factors && (!isfinite(c->factors[i]) || c->factors[i] == 0.0))
            return lathe_error(LATHE_E_ARG, "factors[%d] is %g; expected a number other than 0", i,
                               c->factors[i]);
    }
    return LATHE_OK;
}

lathe_status lathe__job_merge(const lathe_job_merge_config *config, const lathe_job_caller *caller,
                              lathe_arena *arena, lathe_job_merged *out)
{
    merging m = {.config = config, .caller = caller, .arena = arena};
    lathe_job_merge_result figures = {.size = (uint32_t)sizeof figures};
    LATHE_TRY(check(config, caller->dash));
    lathe__job_begin(&m.job, config->progress, config->arg, "nothing was written");
    lathe_status status = find_folders(&m);
    if (status == LATHE_OK)
        status = lathe_registry_create(&m.registry);
    if (status == LATHE_OK)
        status = merge(&m, &figures);
    lathe_registry_destroy(m.registry);
    *out = (lathe_job_merged){figures, m.model, m.adapters[0]};
    return lathe__job_end(&m.job, status);
}

lathe_status lathe_job_merge(const lathe_job_merge_config *config, lathe_job_merge_result *result)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_edits edits = {.n = 0};
    lathe_job_merged made;
    const lathe_job_caller caller = {&edits, ""};
    LATHE_TRY(lathe__job_check(config, (uint32_t)sizeof *config, "lathe_job_merge"));
    if (result)
        LATHE_TRY(lathe__job_check(result, (uint32_t)sizeof *result, "lathe_job_merge_result"));
    lathe_status status = lathe_edits_parse(&edits, config->settings, config->n_settings);
    if (status == LATHE_OK)
        status = lathe__job_merge(config, &caller, &arena, &made);
    if (status == LATHE_OK && result) {
        made.figures.size = result->size;
        *result = made.figures;
    }
    lathe_edits_fini(&edits);
    lathe_arena_fini(&arena);
    return status;
}

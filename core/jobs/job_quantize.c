/* Writes a model with quantized weights. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/new_folder.h"
#include "jobs/job.h"
#include "jobs/job_texts.h"
#include "run/calibrate/quantized_model.h"
#include "run/open/opening.h"
#include "train/train.h"

/* A quantization under way. */
typedef struct quantizing {
    const lathe_job_quantize_config *config;
    const char *dash;
    lathe_job job;
    lathe_edits writing, texts; /* settings for the new folder, and for running over texts */
    lathe_registry *registry;   /* of all runs of the job */
    lathe_run *plan;            /* of the new folder */
    const char *model;          /* the folder of the weights */
    int64_t length;             /* of the first evaluation; 0: none was made */
    int32_t precision;
    lathe_job_quantize_result figures;
} quantizing;

/* ---- settings ---- */

static int is_of(const char *key, const char *section)
{
    const size_t n = strlen(section);
    return strncmp(key, section, n) == 0 && key[n] == '.';
}

/* Bits that say which part of the job reads a setting: the writing of the folder, texts, or both.
 */
enum { FOR_WRITING = 1, FOR_TEXTS = 2 };

static int purpose_of(const char *key)
{
    if (is_of(key, "quant") || strcmp(key, "checkpoint.shard_size") == 0)
        return FOR_WRITING;
    if (strcmp(key, "data.datasets") == 0 || strcmp(key, "data.validation") == 0)
        return 0; /* the config names the data */
    if (is_of(key, "plugins") || strcmp(key, "model.name") == 0)
        return FOR_WRITING | FOR_TEXTS;
    return is_of(key, "data") || is_of(key, "train") || is_of(key, "device") ||
                   is_of(key, "attention") || is_of(key, "tokenizer")
               ? FOR_TEXTS
               : 0;
}

/* Takes the settings for both parts; refuses those that would have no effect. */
static lathe_status take_settings(quantizing *q, const lathe_edits *settings)
{
    const lathe_job_quantize_config *c = q->config;
    const char *dash = q->dash;
    const int has_texts = c->text != NULL || c->calibration != NULL;
    if ((c->columns != NULL || c->format != NULL) && !has_texts)
        return lathe_error(LATHE_E_ARG,
                           "%scolumns and %sformat have no effect without %stext or "
                           "%scalibration: remove them",
                           dash, dash, dash, dash);
    for (int32_t i = 0; i < settings->n; i++) {
        const lathe_edit *one = &settings->list[i];
        const int purpose = purpose_of(one->key);
        if (purpose == FOR_TEXTS && !has_texts)
            return lathe_error(LATHE_E_ARG,
                               "%s%s has no effect without %stext or %scalibration: remove it",
                               dash, one->key, dash, dash);
        if (purpose == 0)
            return lathe_error(
                LATHE_E_ARG,
                "%s%s has no effect: lathe quantize reads [quant], plugins, "
                "model.name and checkpoint.shard_size, and with %stext or %scalibration [data], "
                "[train], [device], [attention] and [tokenizer]",
                dash, one->key, dash, dash);
        if (purpose & FOR_WRITING)
            lathe_edits_add(&q->writing, one);
        if (purpose & FOR_TEXTS)
            lathe_edits_add(&q->texts, one);
    }
    return q->writing.status != LATHE_OK ? q->writing.status : q->texts.status;
}

static int names_format(const lathe_edits *edits)
{
    const char *name = NULL;
    for (int32_t i = 0; i < edits->n; i++)
        if (strcmp(edits->list[i].key, "quant.name") == 0)
            name = edits->list[i].value->s;
    return name != NULL && strcmp(name, "none") != 0;
}

static lathe_status check(quantizing *q, const lathe_edits *settings, lathe_arena *arena)
{
    const lathe_job_quantize_config *c = q->config;
    const char *dash = q->dash;
    LATHE_TRY(take_settings(q, settings));
    if (c->model == NULL)
        return lathe_error(LATHE_E_ARG, "model is missing: the folder of plain weights");
    if (c->output == NULL)
        return lathe_error(LATHE_E_ARG, "%soutput%s is missing: the folder for the quantized model",
                           dash, dash[0] ? " DIR" : "");
    if (c->n_rows < 0)
        return lathe_error(LATHE_E_ARG, "n_rows is %d; expected 1 or more, or 0: 128", c->n_rows);
    LATHE_TRY(lathe_new_folder_check(c->output));
    if (!names_format(&q->writing))
        return lathe_error(LATHE_E_ARG,
                           "%squant.name%s is missing: lathe ls quant lists the formats", dash,
                           dash[0] ? " NAME" : "");
    return lathe__job_find_model(c->model, c->weights, arena, &q->model);
}

static lathe_status open_plan(quantizing *q)
{
    lathe_edits edits = {.n = 0};
    lathe_edits_text(&edits, LATHE_BY_COMMAND, "model.path", q->model);
    lathe_edits_text(&edits, LATHE_BY_COMMAND, "model.weights", "training");
    /* an adapter of its own, because weights that train are not quantized */
    lathe_edits_text(&edits, LATHE_BY_COMMAND, "adapter.name", "lora");
    lathe_edits_take(&edits, &q->writing, 0);
    lathe_edits_int(&edits, LATHE_BY_COMMAND, "data.seq_len", 2);
    const lathe_status status =
        lathe__job_open_run(&edits, LATHE_OPEN_QUANTIZE, q->registry, &q->plan);
    lathe_edits_fini(&edits);
    return status;
}

/* ---- perplexity ---- */

static lathe_job_texts texts_of(const quantizing *q, const char *option, const char *path)
{
    const lathe_job_quantize_config *c = q->config;
    /* in messages the option, without its dashes for a program */
    const char *name = q->dash[0] ? option : option + 2;
    return (lathe_job_texts){.dash = q->dash,
                             .registry = q->registry,
                             .source = {.option = name,
                                        .place = name,
                                        .path = path,
                                        .columns = c->columns,
                                        .format = c->format},
                             .precision = -1};
}

/* The perplexity of a folder on the texts. The second folder is evaluated as the first one was. */
static lathe_status perplexity(quantizing *q, const char *folder, double to, double *out)
{
    lathe_run *run = NULL;
    lathe_evaluation e;
    lathe_job_texts texts = texts_of(q, "--text", q->config->text);
    *out = (double)NAN;
    if (q->config->text == NULL)
        return LATHE_OK;
    const lathe_work_watch *watch = lathe__job_part(&q->job, "evaluate", to);
    LATHE_TRY(lathe_work_tell(watch, 0, 1));
    if (q->length > 0) {
        texts.length = q->length;
        texts.precision = q->precision;
    }
    lathe_status status = lathe__job_open_texts(folder, &q->texts, &texts, &run);
    if (status == LATHE_OK) {
        q->length = run->set.seq_len;
        q->precision = run->set.compute_dtype;
        status = lathe_evaluate(run, 0, watch, &e);
    }
    if (status == LATHE_OK)
        *out = e.perplexity;
    lathe_run_close(run);
    return status;
}

/* Growth of the perplexity that makes a model useless for most purposes: formats of four bits and
 * more are below 1.5 (docs/quantization.md). */
#define MUCH_WORSE 10.0

/* Warns if the quantization damaged the model. */
static void warn_of_damage(const quantizing *q)
{
    const lathe_plugin *format = q->plan->parts.quant.component->plugin;
    const double before = q->figures.perplexity_before, after = q->figures.perplexity;
    int has_bits = 0, has_group = 0;
    if (!(after > MUCH_WORSE * before))
        return;
    for (int32_t i = 0; i < format->n_fields; i++) {
        has_bits |= strcmp(format->fields[i].key, "bits") == 0;
        has_group |= strcmp(format->fields[i].key, "group_size") == 0;
    }
    lathe_log(LATHE_LOG_WARN,
              "the perplexity is %.0f times that before: the quantized model has lost most of what "
              "it knew; use %s%sor a format with more bits (lathe ls quant)",
              after / before, has_bits ? "more bits (--quant.bits), " : "",
              has_group ? "smaller groups (--quant.group_size), " : "");
}

/* ---- calibration ---- */

static int is_calibrated(const lathe_run *plan)
{
    return LATHE_HAS((const lathe_quant_v1 *)plan->parts.quant.table, encode_calibrated);
}

/* The largest number of inputs of a layer that is quantized. */
static int64_t most_inputs(const lathe_run *plan)
{
    int64_t most = 0;
    for (int32_t i = 0; i < plan->params.n_model; i++) {
        const lathe_param *p = plan->params.rows[i];
        if (p->format != NULL && p->desc.dims[1] > most)
            most = p->desc.dims[1];
    }
    return most;
}

/* Opens the calibration data for a format that needs them. */
static lathe_status open_calibration(quantizing *q, lathe_calibration_data *out)
{
    const lathe_job_quantize_config *c = q->config;
    const char *name = q->plan->parts.quant.component->plugin->name, *dash = q->dash;
    lathe_job_texts texts = texts_of(q, "--calibration", c->calibration);
    if (!is_calibrated(q->plan) && (c->calibration != NULL || c->n_rows > 0))
        return lathe_error(LATHE_E_ARG,
                           "%scalibration and %s have no effect: format \"%s\" needs no data", dash,
                           dash[0] ? "--rows" : "n_rows", name);
    if (!is_calibrated(q->plan))
        return LATHE_OK;
    if (c->calibration == NULL)
        return lathe_error(LATHE_E_ARG,
                           "%scalibration%s is missing: format \"%s\" is calibrated on texts", dash,
                           dash[0] ? " PATH" : "", name);
    texts.calibrates = 1;
    LATHE_TRY(lathe__job_open_texts(q->model, &q->texts, &texts, &out->run));
    return lathe__job_count_batches(out->run, c->n_rows, most_inputs(q->plan), dash,
                                    &out->n_batches);
}

/* ---- the job ---- */

/* lathe_quantized_report_fn */
static void report(void *arg, const lathe_quantized_weight *w)
{
    const lathe_job_quantize_config *c = arg;
    const lathe_job_weight weight = {.size = (uint32_t)sizeof weight,
                                     .name = w->name,
                                     .format = w->format,
                                     .rows = w->rows,
                                     .cols = w->cols,
                                     .bytes = w->bytes,
                                     .relative_error = w->relative_error};
    c->weight(c->arg, &weight);
}

static lathe_status write_folder(quantizing *q, double to)
{
    const lathe_job_quantize_config *c = q->config;
    lathe_calibration_data data = {.run = NULL};
    lathe_quantized_model made = {.n = 0};
    const lathe_work_watch *watch = lathe__job_part(&q->job, "quantize", to);
    lathe_status status = lathe_work_tell(watch, 0, 1);
    if (status == LATHE_OK)
        status = open_calibration(q, &data);
    if (status == LATHE_OK)
        status = lathe__quantized_model_write(q->plan, data.run != NULL ? &data : NULL, NULL, 0,
                                              c->output, watch, c->weight != NULL ? report : NULL,
                                              (void *)(uintptr_t)c, &made);
    lathe_run_close(data.run);
    LATHE_TRY(status);
    lathe_job_quantize_result *f = &q->figures;
    f->n_quantized = made.n;
    f->n_plain = made.n_plain;
    f->n_scaled = made.n_scaled;
    f->bytes = made.bytes;
    f->bytes_before = made.bytes_before;
    f->bits = made.n_numbers > 0 ? 8.0 * (double)made.bytes / (double)made.n_numbers : 0.0;
    f->relative_error = made.relative_error;
    q->job.if_ended = "the new folder is complete; it was not evaluated";
    if (c->written != NULL)
        c->written(c->arg, f);
    return LATHE_OK;
}

/* The shares of the parts are a guess: an evaluation takes as long as the texts are. */
static lathe_status quantize(quantizing *q, const lathe_edits *settings, lathe_arena *arena)
{
    const int evaluates = q->config->text != NULL;
    LATHE_TRY(check(q, settings, arena));
    LATHE_TRY(lathe_registry_create(&q->registry));
    LATHE_TRY(open_plan(q));
    LATHE_TRY(perplexity(q, q->model, 0.25, &q->figures.perplexity_before));
    LATHE_TRY(write_folder(q, evaluates ? 0.75 : 1.0));
    LATHE_TRY(perplexity(q, q->config->output, 1.0, &q->figures.perplexity));
    if (evaluates)
        warn_of_damage(q);
    return LATHE_OK;
}

lathe_status lathe__job_quantize(const lathe_job_quantize_config *config,
                                 const lathe_job_caller *caller, lathe_job_quantize_result *result)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    quantizing q = {.config = config,
                    .dash = caller->dash,
                    .figures = {.size = (uint32_t)sizeof(lathe_job_quantize_result),
                                .perplexity_before = (double)NAN,
                                .perplexity = (double)NAN}};
    lathe__job_begin(&q.job, config->progress, config->arg, "nothing was written");
    const lathe_status status = quantize(&q, caller->settings, &arena);
    if (status == LATHE_OK && result != NULL) {
        q.figures.size = result->size;
        *result = q.figures;
    }
    lathe_run_close(q.plan);
    lathe_registry_destroy(q.registry);
    lathe_edits_fini(&q.writing);
    lathe_edits_fini(&q.texts);
    lathe_arena_fini(&arena);
    return lathe__job_end(&q.job, status);
}

lathe_status lathe_job_quantize(const lathe_job_quantize_config *config,
                                lathe_job_quantize_result *result)
{
    lathe_edits edits = {.n = 0};
    const lathe_job_caller caller = {&edits, ""};
    LATHE_TRY(lathe__job_check(config, (uint32_t)sizeof *config, "lathe_job_quantize"));
    if (result != NULL)
        LATHE_TRY(lathe__job_check(result, (uint32_t)sizeof *result, "lathe_job_quantize_result"));
    lathe_status status = lathe_edits_parse(&edits, config->settings, config->n_settings);
    if (status == LATHE_OK)
        status = lathe__job_quantize(config, &caller, result);
    lathe_edits_fini(&edits);
    return status;
}

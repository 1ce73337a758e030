/* Runs a model over texts, and gives the sums of its linear layers' inputs. */
#include "base/error.h"
#include "jobs/job.h"
#include "jobs/job_texts.h"
#include "run/calibrate/calibration_pass.h"

/* A calibration under way. */
typedef struct calibrating {
    const lathe_job_calibrate_config *config;
    const lathe_run *run;
} calibrating;

/* lathe_calibration_pass.wants */
static int32_t wants(void *arg, const char *weight)
{
    (void)arg, (void)weight;
    return 1;
}

/* lathe_calibration_pass.replace; the weight stays as it is */
static lathe_status give(void *arg, const char *weight, const lathe_quant_inputs *inputs,
                         const float **out_values)
{
    const calibrating *c = arg;
    const int32_t row = lathe_params_find(&c->run->params, weight);
    const lathe_desc *desc = row >= 0 ? &c->run->params.rows[row]->desc : NULL;
    const lathe_job_inputs given = {.size = (uint32_t)sizeof given,
                                    .weight = weight,
                                    .rows = desc != NULL ? desc->dims[0] : 0,
                                    .cols = desc != NULL ? desc->dims[1] : 0,
                                    .inputs = inputs};
    c->config->layer(c->config->arg, &given);
    *out_values = NULL;
    return LATHE_OK;
}

static lathe_status calibrate(calibrating *c, const lathe_edits *settings, lathe_job *job,
                              lathe_arena *arena)
{
    const lathe_job_calibrate_config *config = c->config;
    const char *model = NULL;
    lathe_run *run = NULL;
    const lathe_job_texts texts = {.dash = "",
                                   .source = {.option = "text",
                                              .place = "text",
                                              .path = config->text,
                                              .columns = config->columns,
                                              .format = config->format},
                                   .calibrates = 1,
                                   .precision = -1};
    const lathe_work_watch *watch = lathe__job_part(job, "calibrate", 1.0);
    LATHE_TRY(lathe_work_tell(watch, 0, 1));
    LATHE_TRY(lathe__job_find_model(config->model, config->weights, arena, &model));
    LATHE_TRY(lathe__job_open_texts(model, settings, &texts, &run));
    c->run = run;
    lathe_calibration_pass pass = {.run = run,
                                   .watch = watch,
                                   .wants = wants,
                                   .replace = give,
                                   .arg = c,
                                   .sums_magnitudes = 1};
    lathe_status status = lathe__job_count_batches(run, config->n_rows, 1, "", &pass.n_batches);
    if (status == LATHE_OK)
        status = lathe__calibration_pass(&pass);
    lathe_run_close(run);
    return status;
}

lathe_status lathe_job_calibrate(const lathe_job_calibrate_config *config)
{
    lathe_edits edits = {.n = 0};
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_job job;
    calibrating c = {.config = config};
    LATHE_TRY(lathe__job_check(config, (uint32_t)sizeof *config, "lathe_job_calibrate"));
    if (config->model == NULL || config->text == NULL || config->layer == NULL ||
        config->n_rows < 0)
        return lathe_error(LATHE_E_ARG, "lathe_job_calibrate: %s",
                           config->model == NULL  ? "model is missing"
                           : config->text == NULL ? "text is missing: a file or folder of texts"
                           : config->layer == NULL
                               ? "layer is NULL: nobody takes the inputs"
                               : "n_rows is negative; expected 1 or more, or 0: 128");
    lathe__job_begin(&job, config->progress, config->arg, "the model is as it was");
    lathe_status status = lathe_edits_parse(&edits, config->settings, config->n_settings);
    if (status == LATHE_OK)
        status = calibrate(&c, &edits, &job, &arena);
    lathe_edits_fini(&edits);
    lathe_arena_fini(&arena);
    return lathe__job_end(&job, status);
}

/* Evaluates the data of a session. */
#include <string.h>

#include "base/error.h"
#include "jobs/job.h"
#include "session/session_state.h"
#include "train/train.h"

_Static_assert(LATHE_JOB_MAX_METRICS == LATHE_MAX_STAGE_METRICS, "all metrics have room");

static void take(const lathe_evaluation *e, lathe_job_evaluation *out)
{
    *out = (lathe_job_evaluation){.size = out->size,
                                  .n_metrics = e->n_metrics,
                                  .count = e->count,
                                  .unit = lathe_count_unit_name(e->count_unit),
                                  .loss = e->loss,
                                  .perplexity = e->perplexity,
                                  .token_accuracy = e->token_accuracy,
                                  .ece = e->ece,
                                  .bits_per_byte = e->bits_per_byte};
    memcpy(out->metrics, e->metrics, sizeof out->metrics);
    memcpy(out->metric_names, e->metric_names, sizeof out->metric_names);
}

lathe_status lathe_job_evaluate(const lathe_job_evaluate_config *config,
                                lathe_job_evaluation *result)
{
    lathe_evaluation e;
    lathe_job job;
    LATHE_TRY(lathe__job_check(config, (uint32_t)sizeof *config, "lathe_job_evaluate"));
    LATHE_TRY(lathe__job_check(result, (uint32_t)sizeof *result, "lathe_job_evaluation"));
    if (config->session == NULL || config->n_batches < 0 || config->reserved != 0)
        return lathe_error(LATHE_E_ARG, "lathe_job_evaluate: %s",
                           config->session == NULL ? "session is NULL" : "n_batches, or reserved");
    lathe__job_begin(&job, config->progress, config->arg, "there are no figures");
    const lathe_status status = lathe_evaluate(config->session->run, config->n_batches,
                                               lathe__job_part(&job, "evaluate", 1.0), &e);
    if (status == LATHE_OK)
        take(&e, result);
    return lathe__job_end(&job, status);
}

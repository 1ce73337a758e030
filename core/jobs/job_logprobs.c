/* Stores a teacher's most likely tokens at each target of a run's data. */
#include <math.h>

#include "base/error.h"
#include "base/fs.h"
#include "data/rows/logprob_file.h"
#include "jobs/job.h"
#include "run/api/stored_logprobs.h"
#include "run/open/opening.h"

enum { USUAL_K = 32 };

/* The commonest confusions: a teacher's folder instead of the learner's run file, and the key that
 * reads what this job writes. */
static lathe_status check(const lathe_job_logprobs_config *c, const lathe_job_caller *caller)
{
    const char *dash = caller->dash;
    if (c->output == NULL)
        return lathe_error(LATHE_E_ARG,
                           "%soutput%s is missing: the folder for the log-probabilities", dash,
                           dash[0] ? " DIR" : "");
    if (c->run_file == NULL)
        return lathe_error(LATHE_E_ARG, "run_file is missing: the run file of the model that will "
                                        "learn");
    if (lathe_path_is_dir(c->run_file))
        return lathe_error(LATHE_E_ARG,
                           "%s is a folder; expected the run file of the model that will learn; "
                           "%steacher.path%s names the teacher",
                           c->run_file, dash, dash[0] ? " DIR" : "");
    if (lathe_edits_have(caller->settings, 0, "teacher.stored"))
        return lathe_error(LATHE_E_ARG,
                           "%steacher.stored has no effect here: %soutput names the folder to "
                           "write",
                           dash, dash);
    if (c->top_k < 0 || c->top_k > LATHE_LOGPROB_MOST_K)
        return lathe_error(LATHE_E_ARG, "%s is %d; expected 1 to %d", dash[0] ? "--top-k" : "top_k",
                           c->top_k, LATHE_LOGPROB_MOST_K);
    if (!isfinite(c->temperature) || c->temperature < 0.0 || c->temperature > 1e3 ||
        (c->temperature > 0.0 && c->temperature < 1e-3))
        return lathe_error(LATHE_E_ARG, "%stemperature is %g; expected 0.001 to 1000", dash,
                           c->temperature);
    return LATHE_OK;
}

/* Opens the run with teacher.stored = "": the folder that the run file names may be the one that
 * the job is about to write, so it must not be read. */
static lathe_status open_run(const lathe_job_logprobs_config *c, const lathe_job_caller *caller,
                             lathe_run **out)
{
    lathe_edits edits = {.n = 0};
    lathe_edits_take(&edits, caller->settings, 0);
    lathe_edits_text(&edits, LATHE_BY_COMMAND, "teacher.stored", "");
    const lathe_run_source from = {c->run_file, &edits, NULL};
    const lathe_status status = lathe_run_open_logprobs(
        &from, c->top_k > 0 ? c->top_k : USUAL_K, c->temperature > 0.0 ? c->temperature : 1.0, out);
    lathe_edits_fini(&edits);
    return status;
}

lathe_status lathe__job_logprobs(const lathe_job_logprobs_config *config,
                                 const lathe_job_caller *caller, lathe_job_logprobs_result *result)
{
    lathe_run *run = NULL;
    lathe_stored stored = {.n_records = 0};
    lathe_job job;
    LATHE_TRY(check(config, caller));
    lathe__job_begin(&job, config->progress, config->arg,
                     "finished files stay, and the same call goes on after them");
    LATHE_TRY(open_run(config, caller, &run));
    const lathe_storing how = {.dir = config->output,
                               .is_f16 = config->is_f16,
                               .watch = *lathe__job_part(&job, "logprobs", 1.0)};
    const lathe_status status = lathe__logprobs_store(run, &how, &stored);
    lathe_run_close(run);
    if (status == LATHE_OK && result != NULL)
        *result = (lathe_job_logprobs_result){.size = result->size,
                                              .top_k = config->top_k > 0 ? config->top_k : USUAL_K,
                                              .n_records = stored.n_records,
                                              .n_targets = stored.n_targets,
                                              .n_files = stored.n_files,
                                              .n_kept = stored.n_kept,
                                              .bytes = stored.bytes};
    return lathe__job_end(&job, status);
}

lathe_status lathe_job_logprobs(const lathe_job_logprobs_config *config,
                                lathe_job_logprobs_result *result)
{
    lathe_edits edits = {.n = 0};
    const lathe_job_caller caller = {&edits, ""};
    LATHE_TRY(lathe__job_check(config, (uint32_t)sizeof *config, "lathe_job_logprobs"));
    if (result != NULL)
        LATHE_TRY(lathe__job_check(result, (uint32_t)sizeof *result, "lathe_job_logprobs_result"));
    lathe_status status = lathe_edits_parse(&edits, config->settings, config->n_settings);
    if (status == LATHE_OK)
        status = lathe__job_logprobs(config, &caller, result);
    lathe_edits_fini(&edits);
    return status;
}

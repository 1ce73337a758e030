/* Tells how far a job is, and ends it when its caller says so. */
#include "jobs/job.h"

#include <string.h>

#include "base/error.h"
#include "run/open/opening.h"

/* lathe_work_watch.tell */
static lathe_status tell(void *arg, int64_t n_done, int64_t n_all)
{
    lathe_job *job = arg;
    const double share = n_all > 0 ? (double)n_done / (double)n_all : 0.0;
    const double done = job->from + (job->to - job->from) * (share < 1.0 ? share : 1.0);
    job->done = done > job->done ? done : job->done;
    const lathe_job_progress now = {.size = (uint32_t)sizeof now,
                                    .done = job->done,
                                    .part = job->part,
                                    .n_done = n_done,
                                    .n_all = n_all};
    return job->fn == NULL || job->fn(job->arg, &now) == 0
               ? LATHE_OK
               : lathe_error(LATHE_E_INTERRUPTED, "stopped; %s", job->if_ended);
}

void lathe__job_begin(lathe_job *job, lathe_job_progress_fn fn, void *arg, const char *if_ended)
{
    *job = (lathe_job){.fn = fn, .arg = arg, .if_ended = if_ended};
    job->watch = (lathe_work_watch){tell, job};
}

const lathe_work_watch *lathe__job_part(lathe_job *job, const char *part, double to)
{
    job->part = part;
    job->from = job->to;
    job->to = to;
    return &job->watch;
}

lathe_status lathe__job_end(lathe_job *job, lathe_status status)
{
    if (status != LATHE_OK)
        return status;
    job->from = job->to = 1.0;
    if (tell(job, 1, 1) != LATHE_OK) /* too late: all is done */
        lathe_error_clear();
    return LATHE_OK;
}

lathe_status lathe__job_open_run(const lathe_edits *edits, int32_t wants, lathe_registry *registry,
                                 lathe_run **out)
{
    lathe_run_source from = {NULL, edits, NULL};
    LATHE_TRY(lathe_run_inputs_create(NULL, NULL, &from.inputs));
    lathe_run_inputs_use(from.inputs, registry);
    const lathe_status status = lathe_run_open_for(&from, wants, out);
    lathe_run_inputs_release(from.inputs);
    return status;
}

lathe_status lathe__job_check(const void *config, uint32_t need, const char *name)
{
    uint32_t size = 0;
    if (config == NULL)
        return lathe_error(LATHE_E_ARG, "%s: config is NULL", name);
    memcpy(&size, config, sizeof size);
    return size >= need
               ? LATHE_OK
               : lathe_error(LATHE_E_ARG, "%s: config.size is %u; expected %u", name, size, need);
}

/* The common part of all jobs: who watches, how far the work is, and who calls. */
#ifndef LATHE_JOBS_JOB_H
#define LATHE_JOBS_JOB_H

#include "base/arena.h"
#include "base/work_watch.h"
#include "config/config_file.h"
#include "lathe/jobs.h"
#include "plug/registry.h"

/** A job under way. Its parts are done one after another; each has a share of the whole. */
typedef struct lathe_job {
    lathe_job_progress_fn fn; /* NULL: nobody watches */
    void *arg;
    const char *part;
    double from, to;        /* the shares of the whole where the part begins and ends */
    double done;            /* told last */
    const char *if_ended;   /* what the caller is told who ends the job: "nothing was written" */
    lathe_work_watch watch; /* of the part; set by lathe__job_begin */
} lathe_job;

/** Begins the job. */
void lathe__job_begin(lathe_job *job, lathe_job_progress_fn fn, void *arg, const char *if_ended);

/** Begins the next part, which ends at the share `to`. Returns its watcher, valid with the job. */
const lathe_work_watch *lathe__job_part(lathe_job *job, const char *part, double to);

/** Ends the job: after success it tells 1, which cannot cancel it any more. Returns the status. */
lathe_status lathe__job_end(lathe_job *job, lathe_status status);

/** Where a job's settings come from, and how its caller names what the config holds. */
typedef struct lathe_job_caller {
    const lathe_edits *settings; /* parsed already; those of the config are not read */
    const char *dash;            /* before a member's name in messages: "--" for a command */
} lathe_job_caller;

/** Opens a run with settings alone, with plugins that a job opens once. */
lathe_status lathe__job_open_run(const lathe_edits *edits, int32_t wants, lathe_registry *registry,
                                 lathe_run **out);

/** LATHE_E_ARG: a config of another size, or none. */
lathe_status lathe__job_check(const void *config, uint32_t need, const char *name);

/* ---- the jobs, for callers with typed settings ---- */

lathe_status lathe__job_convert(const lathe_job_convert_config *config,
                                const lathe_job_caller *caller);
/** Result of a merge, with the folders that were merged; their paths are in the arena. */
typedef struct lathe_job_merged {
    lathe_job_merge_result figures;
    const char *model, *adapter; /* the weights' folder, and that of the first adapter */
} lathe_job_merged;

lathe_status lathe__job_merge(const lathe_job_merge_config *config, const lathe_job_caller *caller,
                              lathe_arena *arena, lathe_job_merged *out);

lathe_status lathe__job_quantize(const lathe_job_quantize_config *config,
                                 const lathe_job_caller *caller, lathe_job_quantize_result *result);
lathe_status lathe__job_logprobs(const lathe_job_logprobs_config *config,
                                 const lathe_job_caller *caller, lathe_job_logprobs_result *result);

#endif

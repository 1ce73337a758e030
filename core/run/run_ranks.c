/* The ranks of a run. */
#include "run/run_ranks.h"

#include "base/error.h"
#include "base/log.h"
#include "config/config.h"
#include "plug/answers.h"
#include "ranks/grad_buckets.h"
#include "records/row_kind.h"
#include "run/curvature_check.h"
#include "run/iteration.h"

/* Refuses what needs more of the other ranks than sums over rows. */
static lathe_status check(const lathe_run *run)
{
    const lathe_stage_v1 *stage = run->parts.stage.table;
    const char *name = run->parts.stage.component ? run->parts.stage.component->plugin->name : "";
    const int32_t n = lathe_ranks_count(run->ranks);
    if (!lathe_machine_shares(&run->machine))
        return lathe__run_refuse(run, "device", "name",
                                 "device \"%s\" has memory of its own; a run on %d ranks needs a "
                                 "device in host memory in this version",
                                 run->parts.device.component->plugin->name, n);
    if (lathe__run_iterates(run))
        return lathe__run_refuse(run, "stage", "name",
                                 "stage \"%s\" makes its own batches, which %d ranks cannot do in "
                                 "this version: start one rank",
                                 name, n);
    if (stage && stage->rows == LATHE_ROWS_UNPAIRED)
        return lathe__run_refuse(run, "stage", "name",
                                 "the loss of stage \"%s\" is not a sum over the rows of its "
                                 "batch, which %d ranks need in this version: start one rank",
                                 name, n);
    if (lathe__curvature_every(run) > 0)
        return lathe__run_refuse(run, "optimizer", "name",
                                 "optimizer \"%s\" estimates curvature, which %d ranks cannot do "
                                 "in this version: start one rank, or choose another optimizer",
                                 run->parts.optimizer.component->plugin->name, n);
    if (run->set.on_nonfinite == LATHE_POLICY_REWIND)
        return lathe__run_refuse(run, "train", "on_nonfinite",
                                 "train.on_nonfinite = \"rewind\" is not possible on %d ranks in "
                                 "this version; choose \"stop\" or \"skip\"",
                                 n);
    if (run->set.on_spike == LATHE_POLICY_REWIND)
        return lathe__run_refuse(run, "train", "on_spike",
                                 "train.on_spike = \"rewind\" is not possible on %d ranks in this "
                                 "version; choose \"stop\", \"skip\" or \"ignore\"",
                                 n);
    return LATHE_OK;
}

/* Rank 0 alone has the run's folder and its output. */
static void be_quiet(lathe_run *run)
{
    lathe_log_set_rank(run->programs.rank);
    run->set.checkpoint.dir = NULL;
    run->set.checkpoint.keep_best = 0;
    run->set.tensorboard = 0;
    run->set.sample_every = 0;
}

lathe_status lathe__run_join(lathe_run *run)
{
    const lathe_part *part = lathe_config_part(run->config, LATHE_KIND_COLLECTIVE);
    /* all exchanges are in host memory; check() refuses devices without it on several ranks */
    const lathe_collective_probe probe = {.size = (uint32_t)sizeof probe,
                                          .host_memory = 1,
                                          .device = run->parts.device.component->plugin->name};
    const lathe_component *component = part->component;
    const lathe_value *values = part->values;
    lathe_instance engine = {.component = NULL};
    lathe_diags own = {0};
    if (part->is_none)
        return LATHE_OK;
    if (!component)
        LATHE_TRY(lathe_select_collective(run->registry, part->name, &probe, &run->arena,
                                          &component, NULL));
    if (component != part->component || !values) {
        const lathe_status bound =
            lathe_config_bind(run->config, LATHE_KIND_COLLECTIVE, component,
                              run->open.diags ? run->open.diags : &own, &values);
        lathe_diags_fini(&own);
        LATHE_TRY(bound);
    }
    LATHE_TRY(lathe_instance_init(&engine, component, values));
    LATHE_TRY(lathe_ranks_open(&engine, run->set.deadline_seconds, NULL, NULL, &run->ranks));
    if (!run->ranks)
        return LATHE_OK;
    run->programs.rank = lathe_ranks_rank(run->ranks);
    run->programs.n_ranks = lathe_ranks_count(run->ranks);
    if (run->programs.rank > 0)
        be_quiet(run);
    return check(run);
}

lathe_status lathe__run_plan_buckets(lathe_run *run)
{
    if (!run->ranks)
        return LATHE_OK;
    LATHE_TRY(
        lathe_grad_buckets_create(run->ranks, &run->store, run->set.bucket_bytes, &run->buckets));
    run->planned.by[LATHE_MEM_STAGING] += lathe_grad_buckets_bytes(run->buckets);
    return LATHE_OK;
}

lathe_status lathe__run_place_buckets(lathe_run *run)
{
    return lathe_machine_alloc(&run->machine, LATHE_MEM_STAGING,
                               lathe_grad_buckets_bytes(run->buckets), &run->bucket_scratch);
}

void lathe__run_close_buckets(lathe_run *run)
{
    if (run->bucket_scratch)
        lathe_machine_free(&run->machine, LATHE_MEM_STAGING, lathe_grad_buckets_bytes(run->buckets),
                           run->bucket_scratch);
    run->bucket_scratch = NULL;
}

lathe_status lathe__run_first_alone(lathe_run *run, lathe_status (*work)(lathe_run *run))
{
    const double here = 1.0;
    if (!run->ranks)
        return work(run);
    if (run->programs.rank > 0)
        LATHE_TRY(lathe_ranks_gather(run->ranks, &here, 1, 1, NULL));
    LATHE_TRY(work(run));
    return run->programs.rank > 0 ? LATHE_OK : lathe_ranks_gather(run->ranks, &here, 1, 1, NULL);
}

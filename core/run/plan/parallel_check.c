/* Checks [parallel]. */
#include "run/plan/parallel_check.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "config/config.h"
#include "run/parts/run_ranks.h"

static lathe_status check_groups(const lathe_run *run)
{
    const int32_t n = run->set.shard_ranks;
    if (n == 0)
        return LATHE_OK;
    if (run->set.shard == LATHE_SHARD_NONE)
        return lathe__run_refuse(
            run, "parallel", "shard_ranks",
            "parallel.shard_ranks is %d, and parallel.shard = \"none\" divides "
            "nothing: say with parallel.shard what these ranks divide, or "
            "remove the line",
            n);
    if (n == 1)
        return lathe__run_refuse(
            run, "parallel", "shard_ranks",
            "parallel.shard_ranks is 1, and one rank divides nothing; expected "
            "2 or more, or 0: all ranks");
    return LATHE_OK;
}

/* Keys of DiLoCo that say nothing without islands. */
static lathe_status check_idle(const lathe_run *run)
{
    static const char *const keys[] = {"diloco_inner_steps", "diloco_outer_lr",
                                       "diloco_outer_momentum", "diloco_pseudo_gradient_dtype"};
    const int is_row = run->open.as_ranks > 0 && lathe__run_only_plans(run); /* of a plan */
    for (size_t i = 0; !is_row && i < sizeof keys / sizeof *keys; i++)
        if (lathe_config_is_explicit(run->config, "parallel", keys[i]))
            return lathe__run_refuse(run, "parallel", keys[i],
                                     "parallel.%s has no effect without islands: set "
                                     "parallel.diloco_islands, or remove the line",
                                     keys[i]);
    return LATHE_OK;
}

/* The ranks that are there, or planned for; 0: any number. */
static int32_t number_of(const lathe_run *run)
{
    const int32_t alone = lathe__run_joins(run) ? 1 : run->open.as_ranks;
    return run->ranks ? lathe_ranks_count(run->ranks) : alone;
}

/* parallel.shard = "parameters" of all ranks, with islands. */
static lathe_status refuse_whole_shard(const lathe_run *run)
{
    const int32_t inside = number_of(run) / run->set.diloco_islands;
    char max[64] = "";
    if (inside > 1)
        (void)snprintf(max, sizeof max, " to %d at most", inside);
    return lathe__run_refuse(
        run, "parallel", "shard",
        "parallel.shard = \"parameters\" divides the weights among all ranks, and each island of "
        "DiLoCo needs them: choose \"optimizer\" or \"gradients\", or set parallel.shard_ranks%s, "
        "which keeps them inside an island",
        max);
}

/* Refuses settings that islands do not combine with. */
static lathe_status check_islands(const lathe_run *run)
{
    const lathe_value *async = lathe_config_get(run->config, "checkpoint", "async");
    const char *metric = run->set.checkpoint.best_metric;
    if (run->set.diloco_islands == 0)
        return check_idle(run);
    if (run->machine.dev && !lathe_machine_memory(&run->machine)->is_in_place)
        return lathe__run_refuse(run, "parallel", "diloco_islands",
                                 "device \"%s\" has memory of its own, and islands of DiLoCo "
                                 "exchange weights in the host's memory in this version: remove "
                                 "parallel.diloco_islands, or choose a device in host memory",
                                 run->parts.device.component->plugin->name);
    if (!lathe__run_ranks_are_checked(run))
        LATHE_TRY(lathe__run_check_ranks(run));
    if (run->set.shard == LATHE_SHARD_PARAMETERS && run->set.shard_ranks == 0)
        return refuse_whole_shard(run);
    if (run->set.merge_every > 0)
        return lathe__run_refuse(run, "adapter", "merge_every",
                                 "adapter.merge_every changes frozen weights, which islands of "
                                 "DiLoCo do not exchange: remove it, or parallel.diloco_islands");
    if (run->set.early_stopping_patience > 0 && metric && strncmp(metric, "eval_", 5) != 0)
        return lathe__run_refuse(run, "checkpoint", "best_metric",
                                 "train.early_stopping_patience goes by checkpoint.best_metric = "
                                 "\"%s\", which each island of DiLoCo has for itself: choose a "
                                 "figure of evaluations, such as eval_loss",
                                 metric);
    if (async && async->is_explicit && run->set.checkpoint.async)
        return lathe__run_refuse(run, "checkpoint", "async",
                                 "checkpoint.async = true needs a copy of all state, which no rank "
                                 "has with parallel.diloco_islands: remove the line, or set it to "
                                 "false");
    return LATHE_OK;
}

/* Whether the ranks that are there, or planned for, can be laid out. */
static lathe_status check_number(const lathe_run *run)
{
    const lathe_layout_ask ask = lathe__run_layout_ask(&run->set);
    const int32_t n = number_of(run);
    const int32_t fewest = lathe_layout_fewest_ranks(&ask);
    const char *key = NULL;
    if (n == 1 && run->set.diloco_islands > 1)
        return lathe__run_refuse(
            run, "parallel", "diloco_islands",
            "parallel.diloco_islands is %d, and there is one rank: start "
            "several with lathe launch -n %d (validate --ranks %d checks it), or remove the line",
            run->set.diloco_islands, fewest, fewest);
    if (n < 2 || lathe_layout_check(n, &ask, &key) == LATHE_OK)
        return LATHE_OK;
    return lathe__run_refuse(run, "parallel", key ? key : "diloco_islands", "%s",
                             lathe_error_message());
}

lathe_status lathe__parallel_check(const lathe_run *run)
{
    LATHE_TRY(check_groups(run));
    LATHE_TRY(check_islands(run));
    return check_number(run);
}

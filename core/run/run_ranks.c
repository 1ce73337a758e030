/* The ranks of a run. */
#include "run/run_ranks.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "config/config.h"
#include "ranks/extents.h"
#include "ranks/grad_buckets.h"
#include "ranks/step_bytes.h"
#include "records/row_kind.h"
#include "run/curvature_check.h"
#include "run/iteration.h"
#include "store/fresh_grads.h"

/* Refuses what needs more of the other ranks than sums over rows. */
lathe_status lathe__run_check_ranks(const lathe_run *run)
{
    const lathe_stage_v1 *stage = run->parts.stage.component ? run->parts.stage.table : NULL;
    const char *name = run->parts.stage.component ? run->parts.stage.component->plugin->name : "";
    char who[32] = "several ranks";
    if (run->ranks)
        (void)snprintf(who, sizeof who, "%d ranks", lathe_ranks_count(run->ranks));
    if (lathe__run_iterates(run))
        return lathe__run_refuse(run, "stage", "name",
                                 "stage \"%s\" makes its own batches, which %s cannot do in "
                                 "this version: start one rank",
                                 name, who);
    if (stage && stage->rows == LATHE_ROWS_UNPAIRED)
        return lathe__run_refuse(run, "stage", "name",
                                 "the loss of stage \"%s\" is not a sum over the rows of its "
                                 "batch, which %s need in this version: start one rank",
                                 name, who);
    if (lathe__curvature_every(run) > 0)
        return lathe__run_refuse(run, "optimizer", "name",
                                 "optimizer \"%s\" estimates curvature, which %s cannot do "
                                 "in this version: start one rank, or choose another optimizer",
                                 run->parts.optimizer.component->plugin->name, who);
    if (run->set.on_nonfinite == LATHE_POLICY_REWIND)
        return lathe__run_refuse(run, "train", "on_nonfinite",
                                 "train.on_nonfinite = \"rewind\" is not possible on %s in "
                                 "this version; choose \"stop\" or \"skip\"",
                                 who);
    if (run->set.on_spike == LATHE_POLICY_REWIND)
        return lathe__run_refuse(run, "train", "on_spike",
                                 "train.on_spike = \"rewind\" is not possible on %s in this "
                                 "version; choose \"stop\", \"skip\" or \"ignore\"",
                                 who);
    return LATHE_OK;
}

/* On one rank, too: parallel.shard says that there will be several. */
lathe_status lathe__run_check_shard(const lathe_run *run)
{
    const lathe_value *async = lathe_config_get(run->config, "checkpoint", "async");
    if (run->set.shard == LATHE_SHARD_NONE)
        return LATHE_OK;
    if (!run->ranks)
        LATHE_TRY(lathe__run_check_ranks(run));
    if (run->set.merge_every > 0)
        return lathe__run_refuse(run, "adapter", "merge_every",
                                 "adapter.merge_every needs whole weights, and parallel.shard "
                                 "divides them among ranks: use parallel.shard = \"none\"");
    if (!async || !async->is_explicit || !run->set.checkpoint.async)
        return LATHE_OK;
    return lathe__run_refuse(run, "checkpoint", "async",
                             "checkpoint.async = true needs a copy of all state, which no rank has "
                             "with parallel.shard: remove the line, or set it to false; the "
                             "checkpoint is then written from the memory of all ranks");
}

/* How the ranks divide the run: those that are there, or those that a plan is made for. */
static lathe_division_ask ask_of(const lathe_run *run)
{
    const int32_t planned_for = run->open.as_ranks > 1 ? run->open.as_ranks : 1;
    return (lathe_division_ask){.shard = run->set.shard,
                                .rank = lathe_ranks_rank(run->ranks),
                                .n_ranks = run->ranks ? lathe_ranks_count(run->ranks) : planned_for,
                                .bucket_bytes = run->set.bucket_bytes};
}

lathe_status lathe__run_lay_out(lathe_run *run)
{
    const lathe_division_ask ask = ask_of(run);
    return lathe_store_init_divided(&run->store, &run->params, &run->parts.optimizer, &ask);
}

static lathe_exchange_room *room_of(const lathe_run *run)
{
    return run->extents ? lathe_extents_room(run->extents) : lathe_grad_buckets_room(run->buckets);
}

/* The graphs whose gradients are added during the backward. */
static lathe_status plan_backwards(lathe_run *run)
{
    lathe_bucket_life *lives;
    const lathe_short_programs *shorter = &run->programs.shorter;
    const lathe_graph **graphs =
        lathe_arena_alloc(&run->arena, (shorter->n + 1) * (int64_t)sizeof(const lathe_graph *));
    int32_t n = 0;
    if (!graphs)
        return LATHE_E_NOMEM;
    graphs[n++] = lathe_exec_graph(run->programs.train.exec);
    for (int32_t i = 0; i < shorter->n; i++)
        if (shorter->train[i].exec)
            graphs[n++] = lathe_exec_graph(shorter->train[i].exec);
    if (run->extents)
        return lathe_extents_plan(run->extents, graphs, n);
    lives = calloc((size_t)n * (size_t)run->store.division->n_buckets + 1, sizeof *lives);
    if (!lives)
        return lathe_error(LATHE_E_NOMEM, "no memory for the order of buckets");
    const lathe_status status =
        lathe_fresh_grads_plan(&run->store, graphs, n, !lathe_machine_shares(&run->machine), lives);
    free(lives);
    return status;
}

/* The memory that exchanges of ranks will need that are not there yet. */
static lathe_status plan_room(lathe_run *run, const lathe_division_ask *ask)
{
    const lathe_component *named = lathe_config_part(run->config, LATHE_KIND_COLLECTIVE)->component;
    const lathe_component *engine = NULL;
    const int has_own = !lathe_machine_shares(&run->machine);
    if (has_own)
        LATHE_TRY(lathe_ranks_find_data(
            run->registry, named, run->parts.device.component->plugin->name, &run->arena, &engine));
    if (has_own && ((const lathe_collective_v1 *)engine->plugin->table)->flags &
                       LATHE_COLLECTIVE_NEEDS_NO_ROOM)
        return LATHE_OK;
    run->planned.by[LATHE_MEM_STAGING] += lathe_step_room_of(&run->store, ask, has_own);
    return LATHE_OK;
}

lathe_status lathe__run_plan_buckets(lathe_run *run)
{
    const lathe_division_ask ask = ask_of(run);
    if (ask.n_ranks < 2)
        return LATHE_OK;
    if (!run->ranks)
        LATHE_TRY(plan_room(run, &ask));
    else
        LATHE_TRY(run->store.division
                      ? lathe_extents_create(run->ranks, &run->machine, &run->store, &run->extents)
                      : lathe_grad_buckets_create(run->ranks, &run->store, run->set.bucket_bytes,
                                                  &run->buckets));
    if (room_of(run))
        lathe_exchange_room_plan(room_of(run), &run->machine, &run->planned);
    return run->store.division && run->set.shard >= LATHE_SHARD_GRADIENTS ? plan_backwards(run)
                                                                          : LATHE_OK;
}

lathe_status lathe__run_place_buckets(lathe_run *run)
{
    return room_of(run) ? lathe_exchange_room_place(room_of(run), &run->machine) : LATHE_OK;
}

void lathe__run_close_buckets(lathe_run *run)
{
    if (room_of(run))
        lathe_exchange_room_fini(room_of(run), &run->machine);
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

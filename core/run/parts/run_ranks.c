/* A run on several ranks: checks which settings allow it, decides what each rank holds, and plans
 * the memory of their exchanges. A run may also be planned for ranks that are not there
 * (open.as_ranks). */
#include "run/parts/run_ranks.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "config/config.h"
#include "data/records/row_kind.h"
#include "exec/store/fresh_grads.h"
#include "parallel/islands/island_files.h"
#include "parallel/ranks/extents.h"
#include "parallel/ranks/failure_report.h"
#include "parallel/ranks/grad_buckets.h"
#include "parallel/ranks/step_bytes.h"
#include "plug/row_shape.h"
#include "run/parts/curvature_check.h"
#include "run/parts/iteration.h"
#include "run/state/run_saved.h"

/* Ranks add up losses and gradients, which are sums over rows. Refuses settings that need more than
 * that. */
lathe_status lathe__run_check_ranks(const lathe_run *run)
{
    const lathe_stage_v1 *stage = run->parts.stage.component ? run->parts.stage.table : NULL;
    const char *name = run->parts.stage.component ? run->parts.stage.component->plugin->name : "";
    char who[32] = "several ranks";
    const int32_t n = run->ranks ? lathe_ranks_count(run->ranks) : run->open.as_ranks;
    if (n > 1)
        (void)snprintf(who, sizeof who, "%d ranks", n);
    if (lathe__run_iterates(run))
        return lathe__run_refuse(run, "stage", "name",
                                 "stage \"%s\" makes its own batches, which %s cannot do in "
                                 "this version: start one rank",
                                 name, who);
    if (lathe_row_shape_get(lathe_rows_of(stage))->mixes)
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

int32_t lathe__run_ranks_are_checked(const lathe_run *run)
{
    return run->ranks != NULL || (run->open.diags != NULL && run->open.as_ranks > 1);
}

/* parallel.shard means that the file is for several ranks, so its settings are checked on one rank
 * too. */
lathe_status lathe__run_check_shard(const lathe_run *run)
{
    const lathe_value *async = lathe_config_get(run->config, "checkpoint", "async");
    if (run->set.shard == LATHE_SHARD_NONE)
        return LATHE_OK;
    if (!lathe__run_ranks_are_checked(run))
        LATHE_TRY(lathe__run_check_ranks(run));
    if (run->set.merge_every > 0)
        return lathe__run_refuse(run, "adapter", "merge_every",
                                 "adapter.merge_every needs whole weights, and parallel.shard "
                                 "divides them among ranks: use parallel.shard = \"none\"");
    if (async == NULL || !async->is_explicit || !run->set.checkpoint.async)
        return LATHE_OK;
    return lathe__run_refuse(run, "checkpoint", "async",
                             "checkpoint.async = true needs a copy of all state, which no rank has "
                             "with parallel.shard: remove the line, or set it to false; the "
                             "checkpoint is then written from the memory of all ranks");
}

lathe_layout_ask lathe__run_layout_ask(const lathe_settings *set)
{
    return (lathe_layout_ask){.n_islands = set->diloco_islands > 0 ? set->diloco_islands : 1,
                              .shard_ranks =
                                  set->shard == LATHE_SHARD_NONE ? 1 : (int32_t)set->shard_ranks};
}

/* How the parameters are divided among the ranks of the layout. */
static lathe_division_ask division_of(const lathe_run *run)
{
    return lathe_layout_division(run->layout, run->set.shard, run->set.bucket_bytes);
}

/* Gives each rank its place (island, group that divides, copy), and divides the store. */
lathe_status lathe__run_lay_out(lathe_run *run)
{
    const int32_t is_alone = run->ranks == NULL && run->open.as_ranks < 2;
    const lathe_layout_ask places =
        is_alone ? (lathe_layout_ask){1, 1} : lathe__run_layout_ask(&run->set);
    LATHE_TRY(lathe_rank_layout_create(run->ranks, is_alone ? 1 : run->open.as_ranks, &places,
                                       &run->layout));
    const lathe_division_ask ask = division_of(run);
    return lathe_store_init_divided(&run->store, &run->params, &run->parts.optimizer, &ask);
}

/* Memory of the exchanges: of divided parameters, or of buckets of gradients. */
static lathe_exchange_room *room_of(const lathe_run *run)
{
    return run->extents ? lathe_extents_room(run->extents) : lathe_grad_buckets_room(run->buckets);
}

/* Tells the buckets, or the extents, in which order the backward of each training graph completes
 * the gradients, as they are added over the ranks meanwhile. */
static lathe_status plan_backwards(lathe_run *run)
{
    const lathe_short_programs *shorter = &run->programs.shorter;
    const lathe_graph **graphs =
        lathe_arena_alloc(&run->arena, (shorter->n + 1) * (int64_t)sizeof(const lathe_graph *));
    int32_t n = 0;
    if (graphs == NULL)
        return LATHE_E_NOMEM;
    graphs[n++] = lathe_exec_graph(run->programs.train.exec);
    for (int32_t i = 0; i < shorter->n; i++)
        if (shorter->train[i].exec)
            graphs[n++] = lathe_exec_graph(shorter->train[i].exec);
    if (run->buckets)
        return lathe_grad_buckets_plan(run->buckets, graphs, n);
    return run->extents ? lathe_extents_plan(run->extents, graphs, n)
                        : lathe_extents_foresee(&run->machine, &run->store, graphs, n);
}

/* A plan for ranks that are not there: the memory that their exchanges will need. */
static lathe_status plan_room(lathe_run *run, const lathe_division_ask *ask)
{
    const lathe_component *named = lathe_config_part(run->config, LATHE_KIND_COLLECTIVE)->component;
    const lathe_component *engine = NULL;
    const int has_own = !lathe_machine_memory(&run->machine)->is_in_place;
    if (has_own)
        LATHE_TRY(lathe_ranks_find_data(
            run->registry, named, run->parts.device.component->plugin->name, &run->arena, &engine));
    if (has_own && ((const lathe_collective_v1 *)engine->plugin->table)->flags &
                       LATHE_COLLECTIVE_NEEDS_NO_ROOM)
        return LATHE_OK;
    run->planned.by[LATHE_MEM_STAGING] += lathe_step_room_of(&run->store, ask, has_own);
    return LATHE_OK;
}

/* Plans the outer state of DiLoCo if the run has the islands that its file asks for. A file for
 * several ranks may be opened on one rank, which then has none. */
static lathe_status plan_islands(lathe_run *run)
{
    const lathe_settings *s = &run->set;
    const lathe_island_settings set = {.inner_steps = s->diloco_inner_steps,
                                       .max_steps = s->max_steps,
                                       .lr = s->diloco_outer_lr,
                                       .momentum = s->diloco_outer_momentum,
                                       .dtype = s->diloco_dtype,
                                       .bucket_bytes = s->bucket_bytes};
    if (s->diloco_islands != run->layout->n_islands)
        return LATHE_OK;
    LATHE_TRY(lathe_outer_create(run->layout, &run->store, &set,
                                 run->extents ? lathe_extents_serving(run->extents) : NULL,
                                 lathe__run_saved(run), &run->outer));
    lathe_islands_bytes(run->outer->islands, &run->planned);
    return LATHE_OK;
}

static lathe_status plan_exchanges(lathe_run *run)
{
    const lathe_division_ask ask = division_of(run);
    if (ask.n_ranks < 2)
        return LATHE_OK;
    if (run->ranks == NULL)
        LATHE_TRY(plan_room(run, &ask));
    else
        LATHE_TRY(run->store.division
                      ? lathe_extents_create(run->layout, &run->machine, &run->store, &run->extents)
                      : lathe_grad_buckets_create(run->layout->copies, &run->machine, &run->store,
                                                  run->set.bucket_bytes, &run->buckets));
    if (room_of(run))
        lathe_exchange_room_plan(room_of(run), &run->machine, &run->planned);
    const int32_t is_placed = run->store.division && run->set.shard >= LATHE_SHARD_GRADIENTS;
    return run->ranks || is_placed ? plan_backwards(run) : LATHE_OK;
}

lathe_status lathe__run_plan_buckets(lathe_run *run)
{
    LATHE_TRY(plan_exchanges(run));
    return plan_islands(run);
}

lathe_status lathe__run_place_buckets(lathe_run *run)
{
    if (room_of(run))
        LATHE_TRY(lathe_exchange_room_place(room_of(run), &run->machine));
    return run->outer ? lathe_islands_place(run->outer->islands, &run->machine) : LATHE_OK;
}

void lathe__run_close_buckets(lathe_run *run)
{
    if (room_of(run))
        lathe_exchange_room_fini(room_of(run), &run->machine);
    lathe_outer_close(run->outer, &run->machine, lathe_ranks_are_abandoned());
    run->outer = NULL;
}

lathe_status lathe__run_first_alone(lathe_run *run, lathe_status (*work)(lathe_run *run))
{
    const double here = 1.0;
    if (run->ranks == NULL)
        return work(run);
    if (run->programs.rank > 0)
        LATHE_TRY(lathe_ranks_gather(run->ranks, &here, 1, 1, NULL));
    LATHE_TRY(work(run));
    return run->programs.rank > 0 ? LATHE_OK : lathe_ranks_gather(run->ranks, &here, 1, 1, NULL);
}

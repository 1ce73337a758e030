/* Gathers of divided values (store/gathered.h) as exchanges of ranks. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "ranks/extents_internal.h"

/* Prepares gather k. Sets *out_scratch to the scratch that it needs. */
static lathe_status prepare(lathe_extents *x, int32_t k, int64_t *out_scratch)
{
    const lathe_store *store = x->store;
    const lathe_gather *g = &store->gathers->list[k];
    const lathe_division *d = g->is_frozen ? store->gathers->frozen : store->division;
    char label[64];
    lathe_exchange_info info = {.size = (uint32_t)sizeof info};
    const int64_t n = lathe_bucket_counts(d, g->bucket, g->width, x->counts);
    (void)snprintf(label, sizeof label, "gather %d of %d", k + 1, store->gathers->n);
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = LATHE_ALL_GATHER,
                                            .dtype = g->dtype,
                                            .n = n,
                                            .counts = x->counts,
                                            .label = label};
    LATHE_TRY(x->ranks->table->prepare(x->ranks->group, &problem, &x->gathers[k], &info));
    *out_scratch = info.scratch_bytes;
    return LATHE_OK;
}

lathe_status lathe__gathers_prepare(lathe_extents *x)
{
    const int32_t n = x->store->gathers->n;
    x->under_way = -1;
    x->overlaps = 1;
    x->gathers = calloc((size_t)n + 1, sizeof *x->gathers);
    x->waiting = calloc((size_t)n + 1, sizeof *x->waiting);
    if (!x->gathers || !x->waiting)
        return lathe_error(LATHE_E_NOMEM, "no memory for %d gathers of parameters", n);
    for (int32_t k = 0; k < n; k++) {
        int64_t scratch = 0;
        LATHE_TRY(prepare(x, k, &scratch));
        if (scratch > 0)
            x->overlaps = 0;
        x->scratch_bytes = scratch > x->scratch_bytes ? scratch : x->scratch_bytes;
    }
    return LATHE_OK;
}

void lathe__gathers_destroy(lathe_extents *x)
{
    for (int32_t k = 0; x->gathers && k < x->store->gathers->n; k++)
        if (x->gathers[k])
            x->ranks->table->exchange_destroy(x->gathers[k]);
    free(x->gathers);
    free((void *)x->waiting);
}

static lathe_exchange_args args_of(const lathe_extents *x, int32_t gather, void *to)
{
    return (lathe_exchange_args){.size = (uint32_t)sizeof(lathe_exchange_args),
                                 .in = lathe_gather_own(x->store, gather),
                                 .out = to,
                                 .scratch = x->scratch};
}

lathe_status lathe__gather_start(void *arg, int32_t gather, void *to)
{
    lathe_extents *x = arg;
    if (x->is_alone || !x->overlaps) {
        x->waiting[gather] = to;
        return LATHE_OK;
    }
    const lathe_exchange_args args = args_of(x, gather, to);
    LATHE_TRY(lathe__extents_count_sent(x, -1));
    LATHE_TRY(x->ranks->table->start(x->gathers[gather], &args));
    x->under_way = gather;
    return lathe__extents_count_sent(x, 1);
}

lathe_status lathe__gather_poll(void *arg)
{
    lathe_extents *x = arg;
    int32_t is_done = 0;
    if (x->under_way < 0)
        return LATHE_OK;
    LATHE_TRY(lathe__extents_count_sent(x, -1));
    LATHE_TRY(x->ranks->table->test(x->gathers[x->under_way], &is_done));
    return lathe__extents_count_sent(x, 1);
}

lathe_status lathe__gather_wait(void *arg, int32_t gather)
{
    lathe_extents *x = arg;
    void *to = x->waiting[gather];
    if (gather == x->under_way)
        x->under_way = -1;
    LATHE_TRY(lathe__extents_count_sent(x, -1));
    if (!to) {
        LATHE_TRY(x->ranks->table->wait(x->gathers[gather], x->ranks->deadline_seconds));
        return lathe__extents_count_sent(x, 1);
    }
    x->waiting[gather] = NULL;
    if (x->is_alone)
        LATHE_TRY(lathe_serving_gather(&x->serving, gather));
    const lathe_exchange_args args = args_of(x, gather, to);
    LATHE_TRY(lathe_ranks_run(x->ranks, x->gathers[gather], &args, 0));
    return lathe__extents_count_sent(x, 1);
}

lathe_status lathe__gather_serve(void *arg, int32_t gather)
{
    const lathe_extents *x = arg;
    const lathe_exchange_args args = args_of(x, gather, x->store->gathered);
    if (!x->gathers || gather < 0 || gather >= x->store->gathers->n)
        return lathe_error(LATHE_E_RANK, "rank 0 asks for gather %d, which there is not", gather);
    return lathe_ranks_run(x->ranks, x->gathers[gather], &args, 0);
}

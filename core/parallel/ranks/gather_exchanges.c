/* Gathers of divided values (exec/store/gathered.h) as exchanges of ranks. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "parallel/ranks/extents_internal.h"

/* Prepares gather k; room: what it needs. */
static lathe_status prepare(lathe_extents *x, int32_t k, lathe_exchange_room *room)
{
    const lathe_store *store = x->store;
    const lathe_gather *g = &store->gathers->list[k];
    const lathe_division *d = g->is_frozen ? store->gathers->frozen : store->division;
    char label[64];
    const int64_t n = lathe_bucket_counts(d, g->bucket, g->width, x->counts);
    (void)snprintf(label, sizeof label, "gather %d of %d", k + 1, store->gathers->n);
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = LATHE_ALL_GATHER,
                                            .dtype = g->dtype,
                                            .n = n,
                                            .counts = x->counts,
                                            .label = label};
    return lathe_data_prepare(x->ranks, &problem, room, &x->gathers[k]);
}

lathe_status lathe__gathers_prepare(lathe_extents *x)
{
    const int32_t n = x->store->gathers->n;
    x->under_way = -1;
    x->gathers = calloc((size_t)n + 1, sizeof *x->gathers);
    x->waiting = calloc((size_t)n + 1, sizeof *x->waiting);
    if (x->gathers == NULL || x->waiting == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for %d gathers of parameters", n);
    lathe_exchange_room room = {0};
    for (int32_t k = 0; k < n; k++)
        LATHE_TRY(prepare(x, k, &room));
    x->overlaps = lathe_exchange_room_overlaps(&room);
    if (room.scratch_bytes > x->room.scratch_bytes)
        x->room.scratch_bytes = room.scratch_bytes;
    if (room.pinned_bytes > x->room.pinned_bytes)
        x->room.pinned_bytes = room.pinned_bytes;
    return LATHE_OK;
}

void lathe__gathers_destroy(lathe_extents *x)
{
    for (int32_t k = 0; x->gathers && k < x->store->gathers->n; k++)
        lathe_data_destroy(x->ranks, x->gathers[k]);
    free(x->gathers);
    free((void *)x->waiting);
}

static lathe_status start(const lathe_extents *x, int32_t gather, void *to)
{
    return lathe_data_start(x->ranks, x->gathers[gather], &x->room,
                            lathe_gather_own(x->store, gather), to);
}

lathe_status lathe__gather_start(void *arg, int32_t gather, void *to)
{
    lathe_extents *x = arg;
    if (x->is_alone || !x->overlaps) {
        x->waiting[gather] = to;
        return LATHE_OK;
    }
    LATHE_TRY(lathe__extents_count_sent(x, -1));
    LATHE_TRY(start(x, gather, to));
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
    LATHE_TRY(lathe_data_poll(x->ranks, x->gathers[x->under_way], &is_done));
    return lathe__extents_count_sent(x, 1);
}

lathe_status lathe__gather_wait(void *arg, int32_t gather)
{
    lathe_extents *x = arg;
    void *to = x->waiting[gather];
    if (gather == x->under_way)
        x->under_way = -1;
    LATHE_TRY(lathe__extents_count_sent(x, -1));
    if (to == NULL) {
        LATHE_TRY(lathe_data_wait(x->ranks, x->gathers[gather]));
        return lathe__extents_count_sent(x, 1);
    }
    x->waiting[gather] = NULL;
    if (x->is_alone)
        LATHE_TRY(lathe_serving_gather(&x->serving, gather));
    LATHE_TRY(start(x, gather, to));
    LATHE_TRY(lathe_data_wait(x->ranks, x->gathers[gather]));
    return lathe__extents_count_sent(x, 1);
}

lathe_status lathe__gather_serve(void *arg, int32_t gather)
{
    const lathe_extents *x = arg;
    if (x->gathers == NULL || gather < 0 || gather >= x->store->gathers->n)
        return lathe_error(LATHE_E_RANK, "rank 0 asks for gather %d, which there is not", gather);
    LATHE_TRY(start(x, gather, x->store->gathered));
    return lathe_data_wait(x->ranks, x->gathers[gather]);
}

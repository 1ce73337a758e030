/* Exchanges of the device's memory, and the memory that they need. */
#include "parallel/ranks/ranks.h"
#include "plug/select.h"

lathe_status lathe_ranks_find_data(lathe_registry *registry, const lathe_component *named,
                                   const char *device, lathe_arena *arena,
                                   const lathe_component **out)
{
    const lathe_collective_probe probe = {(uint32_t)sizeof probe, 0, device};
    *out = named;
    if (named &&
        ((const lathe_collective_v1 *)named->plugin->table)->flags & LATHE_COLLECTIVE_FOR_DEVICES)
        return LATHE_OK;
    return lathe_select_collective(registry, named ? "staged" : "auto", &probe, arena, out, NULL);
}

lathe_status lathe_ranks_join_data(lathe_ranks *r, lathe_instance *engine,
                                   const lathe_machine *machine)
{
    lathe_rank_data *d = &r->data;
    const lathe_collective_setup setup = {.size = (uint32_t)sizeof setup,
                                          .device = machine->dev,
                                          .device_self = machine->device->self,
                                          .base = r->table,
                                          .base_group = r->group,
                                          .deadline_seconds = r->deadline_seconds};
    lathe_group *group = NULL;
    d->group = NULL;
    d->engine = *engine;
    *engine = (lathe_instance){.component = NULL};
    const lathe_collective_v1 *table = d->engine.table;
    LATHE_TRY(table->open(d->engine.self, &setup, &group));
    d->table = table;
    d->group = group;
    d->stream = machine->stream;
    d->info.size = (uint32_t)sizeof d->info;
    return table->info(group, &d->info);
}

lathe_status lathe__ranks_split_data(const lathe_ranks *of, int32_t color, int32_t key,
                                     lathe_ranks *out)
{
    lathe_rank_data *d = &out->data;
    d->table = of->data.table;
    if (of->data.group == of->group) { /* host memory */
        d->group = out->group;
        d->info = out->info;
        return LATHE_OK;
    }
    LATHE_TRY(d->table->split(of->data.group, color, key, &d->group));
    d->stream = of->data.stream;
    d->info.size = (uint32_t)sizeof d->info;
    return d->table->info(d->group, &d->info);
}

void lathe__ranks_leave_data(lathe_ranks *r)
{
    if (r->data.group && r->data.group != r->group)
        (void)r->data.table->close(r->data.group);
    lathe_instance_fini(&r->data.engine);
    r->data.group = NULL;
}

/* ---- memory ---- */

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void widen(int64_t *max, int64_t bytes)
{
    const int64_t whole = round_up(bytes);
    *max = whole > *max ? whole : *max;
}

int32_t lathe_exchange_room_overlaps(const lathe_exchange_room *room)
{
    return room->scratch_bytes == 0 && room->pinned_bytes == 0;
}

void lathe_exchange_room_plan(const lathe_exchange_room *room, const lathe_machine *m,
                              lathe_mem_bytes *planned)
{
    planned->by[lathe_machine_memory(m)->room] += room->scratch_bytes;
    planned->by[LATHE_MEM_STAGING] += room->pinned_bytes;
}

lathe_status lathe_exchange_room_place(lathe_exchange_room *room, lathe_machine *m)
{
    LATHE_TRY(
        lathe_machine_alloc(m, lathe_machine_memory(m)->room, room->scratch_bytes, &room->scratch));
    return lathe_machine_alloc(m, LATHE_MEM_STAGING, room->pinned_bytes, &room->pinned);
}

void lathe_exchange_room_fini(lathe_exchange_room *room, lathe_machine *m)
{
    lathe_machine_free(m, lathe_machine_memory(m)->room, room->scratch_bytes, room->scratch);
    lathe_machine_free(m, LATHE_MEM_STAGING, room->pinned_bytes, room->pinned);
    room->scratch = room->pinned = NULL;
}

/* ---- exchanges ---- */

lathe_status lathe_data_prepare(const lathe_ranks *r, const lathe_exchange_problem *problem,
                                lathe_exchange_room *room, lathe_exchange **out)
{
    lathe_exchange_info info = {.size = (uint32_t)sizeof info};
    LATHE_TRY(r->data.table->prepare(r->data.group, problem, out, &info));
    widen(&room->scratch_bytes, info.scratch_bytes);
    widen(&room->pinned_bytes, info.pinned_bytes);
    return LATHE_OK;
}

void lathe_data_destroy(const lathe_ranks *r, lathe_exchange *exchange)
{
    if (exchange)
        r->data.table->exchange_destroy(exchange);
}

lathe_status lathe_data_start(const lathe_ranks *r, lathe_exchange *exchange,
                              const lathe_exchange_room *room, const void *in, void *out)
{
    const lathe_exchange_args args = {.size = (uint32_t)sizeof args,
                                      .in = in,
                                      .out = out,
                                      .scratch = room->scratch,
                                      .stream = r->data.stream,
                                      .pinned = room->pinned};
    return r->data.table->start(exchange, &args);
}

lathe_status lathe_data_poll(const lathe_ranks *r, lathe_exchange *exchange, int32_t *out_done)
{
    *out_done = 0;
    return r->data.table->test(exchange, out_done);
}

lathe_status lathe_data_wait(const lathe_ranks *r, lathe_exchange *exchange)
{
    return r->data.table->wait(exchange, r->deadline_seconds);
}

lathe_status lathe_data_run(const lathe_ranks *r, lathe_exchange *exchange,
                            const lathe_exchange_room *room, const void *in, void *out)
{
    LATHE_TRY(lathe_data_start(r, exchange, room, in, out));
    return lathe_data_wait(r, exchange);
}

lathe_status lathe_data_sent(const lathe_ranks *r, int64_t *out)
{
    int64_t received = 0;
    return r->data.table->traffic(r->data.group, out, &received);
}

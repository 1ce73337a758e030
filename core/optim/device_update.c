/* Runs the optimizer's update with the kernels of the plugin's image, on memory that the host
 * cannot access.
 *
 * A part is updated by one launch, or by the launches of the plugin's queue(). The kernels read a
 * table of tensors that was copied to device memory before the first step.
 *
 *   own      |tensors|first chunks|averages|sums by chunk|queue()'s own|shared|
 *   staging  |sums by chunk|queue()'s|
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exec/store/transfer.h"
#include "lathe/kit/optimizer_queue.h"
#include "optim/updater.h"

/* A range of tensors that one launch updates. */
typedef struct part {
    int32_t begin, end;      /* tensors begin to end-1 */
    int64_t chunk, n_chunks; /* first chunk, number of chunks */
} part;

typedef struct device_update {
    lathe_updater base;
    lathe_machine *m;
    const lathe_store *store;
    const lathe_instance *optimizer;
    const lathe_optimizer_tensor *tensors;
    part *parts;
    int32_t n_tensors, n_parts;
    int64_t n_chunks;
    lathe_optimizer_room room; /* for queue(): sum of `own`, maximum of `shared` and of `host` */
    char *own, *staging;
    double *sums, *host_sums; /* two per chunk */
    float **averages; /* [n_tensors] in device memory; NULL: the optimizer has no average() */
    char *queue_own, *queue_shared, *queue_host;
    lathe_elementwise_args args; /* the fields that are equal for all parts */
} device_update;

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Adds the memory that queue() needs for tensor i to u->room. */
static void add_room(device_update *u, int32_t i)
{
    const lathe_optimizer_v1 *table = u->optimizer->table;
    const lathe_param_info info = lathe_params_info(u->store->params, u->tensors[i].tensor);
    lathe_optimizer_room room = {0};
    if (!LATHE_HAS(table, queue) || !LATHE_HAS(table, room))
        return;
    table->room(u->optimizer->self, &info, &room);
    u->room.own += room.own;
    u->room.shared = room.shared > u->room.shared ? room.shared : u->room.shared;
    u->room.host = room.host > u->room.host ? room.host : u->room.host;
}

static void count_chunks(device_update *u, const lathe_update_table *table)
{
    u->tensors = table->tensors;
    u->n_parts = table->n_parts;
    u->n_tensors = table->n_parts > 0 ? table->ends[table->n_parts - 1] : 0;
    for (int32_t k = 0; k < u->n_parts; k++) {
        part *p = &u->parts[k];
        *p = (part){k > 0 ? table->ends[k - 1] : 0, table->ends[k], u->n_chunks, 0};
        for (int32_t i = p->begin; i < p->end; i++)
            p->n_chunks += lathe_queue_chunks(&table->tensors[i]);
        u->n_chunks += p->n_chunks;
    }
    for (int32_t i = 0; i < u->n_tensors; i++)
        add_room(u, i);
}

static void destroy(lathe_updater *base)
{
    device_update *u = (device_update *)base;
    if (!u)
        return;
    lathe_machine_free(u->m, LATHE_MEM_OPTIMIZER, lathe_device_updater.own_bytes(base), u->own);
    lathe_machine_free(u->m, LATHE_MEM_STAGING, lathe_device_updater.staging_bytes(base),
                       u->staging);
    free(u->parts);
    free(u);
}

static lathe_status create(lathe_machine *m, const lathe_store *store,
                           const lathe_instance *optimizer, const lathe_update_table *table,
                           lathe_updater **out)
{
    device_update *u = calloc(1, sizeof *u);
    part *parts = calloc((size_t)table->n_parts + 1, sizeof *parts);
    if (!u || !parts) {
        free(u);
        free(parts);
        return lathe_error(LATHE_E_NOMEM, "no memory for the optimizer step");
    }
    u->base.ops = &lathe_device_updater;
    u->m = m;
    u->store = store;
    u->optimizer = optimizer;
    u->parts = parts;
    count_chunks(u, table);
    *out = &u->base;
    return LATHE_OK;
}

static int64_t tensors_bytes(const device_update *u)
{
    return round_up(u->n_tensors * (int64_t)sizeof *u->tensors);
}

/* Entries of the table of first chunks: for each part its number of tensors plus one. */
static int64_t n_firsts(const device_update *u)
{
    return u->n_tensors + (u->n_parts > 0 ? u->n_parts : 1);
}

static int64_t first_chunk_bytes(const device_update *u)
{
    return round_up(n_firsts(u) * (int64_t)sizeof(int64_t));
}

static int64_t averages_bytes(const device_update *u)
{
    const lathe_optimizer_v1 *table = u->optimizer->table;
    return LATHE_HAS(table, average) ? round_up(u->n_tensors * (int64_t)sizeof *u->averages) : 0;
}

static int64_t sums_bytes(const device_update *u)
{
    return round_up(2 * u->n_chunks * (int64_t)sizeof(double));
}

static int64_t own_bytes(const lathe_updater *base)
{
    const device_update *u = (const device_update *)base;
    return tensors_bytes(u) + first_chunk_bytes(u) + averages_bytes(u) + sums_bytes(u) +
           round_up(u->room.own) + round_up(u->room.shared);
}

static int64_t staging_bytes(const lathe_updater *base)
{
    const device_update *u = (const device_update *)base;
    return sums_bytes(u) + round_up(u->room.host);
}

/* Uploads the table of pointers that average() writes to, one per tensor. */
static lathe_status place_averages(device_update *u, void *memory)
{
    float **to = calloc((size_t)u->n_tensors + 1, sizeof *to);
    if (!to)
        return lathe_error(LATHE_E_NOMEM, "no memory for the tables of %d tensors", u->n_tensors);
    for (int32_t i = 0; i < u->n_tensors; i++) {
        const lathe_store_row *row = &u->store->rows[u->tensors[i].tensor];
        float *held = lathe_store_average(u->store, u->tensors[i].tensor);
        /* part of a tensor */
        to[i] = held ? held + (u->tensors[i].first - row->held[LATHE_OF_STATE].begin) : NULL;
    }
    u->averages = memory;
    const lathe_status status = lathe_upload(u->m, memory, to, u->n_tensors * (int64_t)sizeof *to);
    free(to);
    return status;
}

/* Uploads the table of tensors and the table of their first chunks; they stay in device memory. */
static lathe_status place_tables(device_update *u)
{
    char *first_chunk = u->own + tensors_bytes(u);
    int64_t *first = calloc((size_t)n_firsts(u), sizeof *first);
    if (!first)
        return lathe_error(LATHE_E_NOMEM, "no memory for the tables of %d tensors", u->n_tensors);
    for (int32_t k = 0; k < u->n_parts; k++)
        for (int32_t i = u->parts[k].begin; i < u->parts[k].end; i++)
            first[i + k + 1] = first[i + k] + lathe_queue_chunks(&u->tensors[i]);
    lathe_status status =
        lathe_upload(u->m, u->own, u->tensors, u->n_tensors * (int64_t)sizeof *u->tensors);
    if (status == LATHE_OK)
        status = lathe_upload(u->m, first_chunk, first, n_firsts(u) * (int64_t)sizeof *first);
    free(first);
    if (status == LATHE_OK && averages_bytes(u) > 0)
        status = place_averages(u, first_chunk + first_chunk_bytes(u));
    u->args = (lathe_elementwise_args){.tensors = (const lathe_optimizer_tensor *)(void *)u->own,
                                       .first_chunk = (const int64_t *)(void *)first_chunk,
                                       .scalars = u->store->step->scalars,
                                       .counter = u->store->step->counter,
                                       .sums = u->sums};
    return status;
}

/* Arguments of the kernels for part k. */
static lathe_elementwise_args part_args(const device_update *u, int32_t k)
{
    const part *p = &u->parts[k];
    lathe_elementwise_args args = u->args;
    args.tensors += p->begin;
    args.first_chunk += p->begin + k;
    args.n_chunks = p->n_chunks;
    args.n_tensors = p->end - p->begin;
    args.sums += 2 * p->chunk;
    return args;
}

/* n_blocks = 0 loads the kernel without running it. */
static lathe_status launch(const device_update *u, const char *kernel, int64_t n_blocks,
                           const void *args, int64_t args_bytes)
{
    const lathe_optimizer_v1 *table = u->optimizer->table;
    return u->m->dev->launch(u->m->device->self, u->m->stream, table->cuda_image, kernel, n_blocks,
                             LATHE_ELEMENTWISE_THREADS, args, args_bytes);
}

static lathe_status place(lathe_updater *base)
{
    device_update *u = (device_update *)base;
    void *memory = NULL;
    LATHE_TRY(lathe_machine_alloc(u->m, LATHE_MEM_OPTIMIZER, own_bytes(base), &memory));
    u->own = memory;
    LATHE_TRY(lathe_machine_alloc(u->m, LATHE_MEM_STAGING, staging_bytes(base), &memory));
    u->staging = memory;
    char *own = u->own + tensors_bytes(u) + first_chunk_bytes(u) + averages_bytes(u);
    u->sums = (double *)(void *)own;
    u->host_sums = (double *)(void *)u->staging;
    u->queue_own = own + sums_bytes(u);
    u->queue_shared = u->queue_own + round_up(u->room.own);
    u->queue_host = u->staging + sums_bytes(u);
    LATHE_TRY(place_tables(u));
    const lathe_status status =
        u->n_chunks > 0 ? launch(u, LATHE_ELEMENTWISE_KERNEL, 0, &u->args, (int64_t)sizeof u->args)
                        : LATHE_OK; /* 0 blocks: loads the kernel */
    return status == LATHE_OK
               ? status
               : lathe_error_context(status, "optimizer %s", u->optimizer->component->plugin->name);
}

/* ---- callbacks for the optimizer's queue() ---- */

static lathe_status queue_launch(void *ctx, const char *kernel, int64_t n_blocks, const void *args,
                                 int64_t args_bytes)
{
    return n_blocks > 0 ? launch(ctx, kernel, n_blocks, args, args_bytes) : LATHE_OK;
}

static lathe_status queue_copy(void *ctx, void *dst, const void *src, int64_t bytes,
                               int32_t direction)
{
    const device_update *u = ctx;
    return u->m->dev->copy(u->m->device->self, u->m->stream, dst, src, bytes, direction);
}

static lathe_status queue_wait(void *ctx)
{
    return lathe_machine_sync(((const device_update *)ctx)->m);
}

static lathe_status run(lathe_updater *base, int32_t k, int32_t what,
                        const lathe_optimizer_step *step)
{
    device_update *u = (device_update *)base;
    const lathe_optimizer_v1 *table = u->optimizer->table;
    const part *p = &u->parts[k];
    const lathe_elementwise_args args = part_args(u, k);
    lathe_optimizer_step mine = *step;
    mine.tensors = u->tensors + p->begin;
    mine.n_tensors = p->end - p->begin;
    if (p->n_chunks == 0)
        return LATHE_OK;
    const lathe_optimizer_queue todo = {
        .size = (uint32_t)sizeof todo,
        .what = what,
        .step = &mine,
        .args = &args,
        .averages = what == LATHE_QUEUE_AVERAGE ? u->averages + p->begin : NULL,
        .own = u->queue_own,
        .shared = u->queue_shared,
        .host = u->queue_host,
        .ctx = u,
        .launch = queue_launch,
        .copy = queue_copy,
        .wait = queue_wait};
    return LATHE_HAS(table, queue) ? table->queue(u->optimizer->self, &todo)
                                   : lathe_queue_elementwise(&todo);
}

static lathe_status fetch(lathe_updater *base)
{
    const device_update *u = (const device_update *)base;
    return lathe_fetch_pinned(u->m, u->host_sums, u->sums,
                              2 * u->n_chunks * (int64_t)sizeof(double));
}

static void figures(lathe_updater *base, double *io_update2, double *io_param2)
{
    const device_update *u = (const device_update *)base;
    for (int64_t c = 0; c < u->n_chunks; c++) {
        *io_update2 += u->host_sums[2 * c];
        *io_param2 += u->host_sums[2 * c + 1];
    }
}

const lathe_updater_ops lathe_device_updater = {.part_elements = (int64_t)1 << 24,
                                                .create = create,
                                                .destroy = destroy,
                                                .own_bytes = own_bytes,
                                                .staging_bytes = staging_bytes,
                                                .place = place,
                                                .run = run,
                                                .fetch = fetch,
                                                .figures = figures};

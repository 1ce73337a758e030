/* The optimizer step on a device that has its own memory. */
#include "update/update_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lathe/kit/optimizer_queue.h"
#include "plug/answers.h"

/* A range of tensors that one launch updates. */
typedef struct part {
    int32_t begin, end;      /* tensors begin to end-1 */
    int64_t chunk, n_chunks; /* first chunk, number of chunks */
} part;

struct lathe_device_update {
    lathe_machine *m;
    const lathe_store *store;
    const lathe_instance *optimizer;
    const lathe_optimizer_tensor *tensors;
    part *parts;
    int32_t n_tensors, n_parts;
    int64_t n_chunks, n_matrix_sums;
    lathe_optimizer_room room; /* for queue(): sum of `own`, maximum of `shared` and of `host` */
    lathe_squares of[LATHE_N_SQUARES];
    lathe_kernel *clamp[2]; /* for the gradients in f32, in bf16; NULL: no such gradients */
    int64_t clamp_scratch;
    double *rows; /* [store->n_rows] */
    char *own, *staging;
    double *sums, *host_sums; /* two per chunk, then one per APPLY_UPDATE */
    void *scratch;            /* for the clamp kernels */
    /* m->n_syncs when the sums of squared gradients were queued; -1: not queued */
    int64_t expected_at;
    float **averages; /* [n_tensors] in device memory; NULL: the optimizer has no average() */
    char *queue_own, *queue_shared, *queue_host;
    lathe_elementwise_args args; /* the fields that are equal for all parts */
};

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static lathe_status create_clamp(lathe_device_update *u, int64_t n, int32_t dtype,
                                 lathe_kernel **out)
{
    int64_t scratch = 0;
    const lathe_op_attrs attrs = {0};
    const lathe_desc x = lathe_desc_1d(dtype, n);
    const lathe_desc in[2] = {x, lathe_desc_1d(LATHE_F32, 1)};
    if (n == 0)
        return LATHE_OK;
    const lathe_kernel_problem problem = {.size = (uint32_t)sizeof problem,
                                          .op = LATHE_OP_CLAMP,
                                          .attrs = &attrs,
                                          .in = in,
                                          .out = &x,
                                          .n_in = 2,
                                          .n_out = 1,
                                          .may_overwrite = 1,
                                          .flags = u->m->flags,
                                          .n_threads = u->m->n_threads};
    LATHE_TRY(lathe_answer_kernel(u->m->device, &problem, out, &scratch));
    u->clamp_scratch = scratch > u->clamp_scratch ? scratch : u->clamp_scratch;
    return LATHE_OK;
}

static lathe_status create_clamps(lathe_device_update *u)
{
    const lathe_store *s = u->store;
    const int64_t narrow = (s->grad_bytes - s->wide_grad_bytes) / 2;
    LATHE_TRY(create_clamp(u, s->wide_grad_bytes / 4, LATHE_F32, &u->clamp[0]));
    return create_clamp(u, narrow, s->params->grad_dtype, &u->clamp[1]);
}

/* Adds the memory that queue() needs for tensor i to u->room. */
static void add_room(lathe_device_update *u, int32_t i)
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

static void count_chunks(lathe_device_update *u, const lathe_update_table *table)
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

lathe_status lathe_device_update_create(lathe_machine *m, const lathe_store *store,
                                        const lathe_instance *optimizer,
                                        const lathe_update_table *table, int64_t n_matrix_sums,
                                        lathe_device_update **out)
{
    lathe_device_update *u = calloc(1, sizeof *u);
    if (u) {
        u->rows = calloc((size_t)store->n_rows + 1, sizeof *u->rows);
        u->parts = calloc((size_t)table->n_parts + 1, sizeof *u->parts);
    }
    if (!u || !u->rows || !u->parts) {
        if (u) {
            free(u->rows);
            free(u->parts);
        }
        free(u);
        return lathe_error(LATHE_E_NOMEM, "no memory for the optimizer step");
    }
    u->m = m;
    u->store = store;
    u->optimizer = optimizer;
    u->n_matrix_sums = n_matrix_sums;
    u->expected_at = -1;
    count_chunks(u, table);
    lathe_status status = create_clamps(u);
    for (int32_t k = 0; k < LATHE_N_SQUARES && status == LATHE_OK; k++)
        status = lathe_squares_init(&u->of[k], m, store, k);
    if (status != LATHE_OK) {
        lathe_device_update_destroy(u);
        return status;
    }
    *out = u;
    return LATHE_OK;
}

void lathe_device_update_destroy(lathe_device_update *u)
{
    if (!u)
        return;
    lathe_machine_free(u->m, LATHE_MEM_OPTIMIZER, lathe_device_update_own_bytes(u), u->own);
    lathe_machine_free(u->m, LATHE_MEM_STAGING, lathe_device_update_staging_bytes(u), u->staging);
    for (int32_t k = 0; k < LATHE_N_SQUARES; k++)
        lathe_squares_fini(&u->of[k]);
    for (int32_t k = 0; k < 2; k++)
        if (u->clamp[k])
            u->m->dev->kernel_destroy(u->m->device->self, u->clamp[k]);
    free(u->parts);
    free(u->rows);
    free(u);
}

static int64_t tensors_bytes(const lathe_device_update *u)
{
    return round_up(u->n_tensors * (int64_t)sizeof *u->tensors);
}

/* Entries of the table of first chunks: for each part its number of tensors plus one. */
static int64_t n_firsts(const lathe_device_update *u)
{
    return u->n_tensors + (u->n_parts > 0 ? u->n_parts : 1);
}

static int64_t first_chunk_bytes(const lathe_device_update *u)
{
    return round_up(n_firsts(u) * (int64_t)sizeof(int64_t));
}

static int64_t averages_bytes(const lathe_device_update *u)
{
    const lathe_optimizer_v1 *table = u->optimizer->table;
    return LATHE_HAS(table, average) ? round_up(u->n_tensors * (int64_t)sizeof *u->averages) : 0;
}

static int64_t sums_bytes(const lathe_device_update *u)
{
    return round_up((2 * u->n_chunks + u->n_matrix_sums) * (int64_t)sizeof(double));
}

int64_t lathe_device_update_own_bytes(const lathe_device_update *u)
{
    int64_t squares = 0;
    for (int32_t k = 0; k < LATHE_N_SQUARES; k++)
        squares += lathe_squares_bytes(&u->of[k]);
    return tensors_bytes(u) + first_chunk_bytes(u) + averages_bytes(u) + sums_bytes(u) + squares +
           round_up(u->clamp_scratch) + round_up(u->room.own) + round_up(u->room.shared);
}

int64_t lathe_device_update_staging_bytes(const lathe_device_update *u)
{
    int64_t squares = 0;
    for (int32_t k = 0; k < LATHE_N_SQUARES; k++)
        squares += lathe_squares_staging_bytes(&u->of[k]);
    return round_up((int64_t)sizeof(lathe_step_memory)) + sums_bytes(u) + squares +
           round_up(u->room.host);
}

/* Uploads the table of pointers that average() writes to, one per tensor. */
static lathe_status place_averages(lathe_device_update *u, void *memory)
{
    float **to = calloc((size_t)u->n_tensors + 1, sizeof *to);
    if (!to)
        return lathe_error(LATHE_E_NOMEM, "no memory for the tables of %d tensors", u->n_tensors);
    for (int32_t i = 0; i < u->n_tensors; i++) {
        float *whole = lathe_store_average(u->store, u->tensors[i].tensor);
        to[i] = whole ? whole + u->tensors[i].first : NULL; /* part of a tensor */
    }
    u->averages = memory;
    const lathe_status status = lathe_upload(u->m, memory, to, u->n_tensors * (int64_t)sizeof *to);
    free(to);
    return status;
}

/* Uploads the table of tensors and the table of their first chunks; they stay in device memory. */
static lathe_status place_tables(lathe_device_update *u)
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
static lathe_elementwise_args part_args(const lathe_device_update *u, int32_t k)
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
static lathe_status launch(const lathe_device_update *u, const char *kernel, int64_t n_blocks,
                           const void *args, int64_t args_bytes)
{
    const lathe_optimizer_v1 *table = u->optimizer->table;
    return u->m->dev->launch(u->m->device->self, u->m->stream, table->cuda_image, kernel, n_blocks,
                             LATHE_ELEMENTWISE_THREADS, args, args_bytes);
}

lathe_status lathe_device_update_place(lathe_device_update *u)
{
    void *memory = NULL;
    LATHE_TRY(
        lathe_machine_alloc(u->m, LATHE_MEM_OPTIMIZER, lathe_device_update_own_bytes(u), &memory));
    u->own = memory;
    LATHE_TRY(lathe_machine_alloc(u->m, LATHE_MEM_STAGING, lathe_device_update_staging_bytes(u),
                                  &memory));
    u->staging = memory;
    char *own = u->own + tensors_bytes(u) + first_chunk_bytes(u) + averages_bytes(u);
    char *host = u->staging + round_up((int64_t)sizeof(lathe_step_memory));
    u->sums = (double *)(void *)own;
    u->host_sums = (double *)(void *)host;
    own += sums_bytes(u);
    host += sums_bytes(u);
    for (int32_t k = 0; k < LATHE_N_SQUARES; k++) {
        LATHE_TRY(lathe_squares_place(&u->of[k], u->store, k, own, host));
        own += lathe_squares_bytes(&u->of[k]);
        host += lathe_squares_staging_bytes(&u->of[k]);
    }
    u->scratch = u->clamp_scratch > 0 ? own : NULL;
    u->queue_own = own + round_up(u->clamp_scratch);
    u->queue_shared = u->queue_own + round_up(u->room.own);
    u->queue_host = host;
    LATHE_TRY(place_tables(u));
    const lathe_status status =
        u->n_chunks > 0 ? launch(u, LATHE_ELEMENTWISE_KERNEL, 0, &u->args, (int64_t)sizeof u->args)
                        : LATHE_OK; /* 0 blocks: loads the kernel */
    return status == LATHE_OK
               ? status
               : lathe_error_context(status, "optimizer %s", u->optimizer->component->plugin->name);
}

double *lathe_device_update_matrix_sums(lathe_device_update *u)
{
    return u->sums + 2 * u->n_chunks;
}

static lathe_status queue_squares(lathe_device_update *u, int32_t family)
{
    LATHE_TRY(lathe_squares_queue(&u->of[family]));
    return family == LATHE_SQUARES_GRADIENTS ? lathe_squares_queue(&u->of[LATHE_SQUARES_NARROW])
                                             : LATHE_OK;
}

lathe_status lathe_device_update_expect(lathe_device_update *u)
{
    u->expected_at = u->m->n_syncs;
    return queue_squares(u, LATHE_SQUARES_GRADIENTS);
}

void lathe_device_update_forget(lathe_device_update *u)
{
    u->expected_at = -1;
}

lathe_status lathe_device_update_squares(lathe_device_update *u, int32_t family, double *rows)
{
    const int are_here =
        family == LATHE_SQUARES_GRADIENTS && u->expected_at >= 0 && u->expected_at < u->m->n_syncs;
    if (!are_here) {
        LATHE_TRY(queue_squares(u, family));
        LATHE_TRY(lathe_machine_sync(u->m));
    }
    memset(rows, 0, (size_t)u->store->n_rows * sizeof *rows);
    lathe_squares_read(&u->of[family], rows);
    if (family != LATHE_SQUARES_GRADIENTS)
        return LATHE_OK;
    lathe_squares_read(&u->of[LATHE_SQUARES_NARROW], rows);
    u->expected_at = -1;
    return LATHE_OK;
}

lathe_step_memory *lathe_device_update_step(lathe_device_update *u)
{
    return (lathe_step_memory *)(void *)u->staging;
}

lathe_status lathe_device_update_send(lathe_device_update *u)
{
    return u->m->dev->copy(u->m->device->self, u->m->stream, u->store->step, u->staging,
                           (int64_t)sizeof(lathe_step_memory), LATHE_COPY_TO_DEVICE);
}

static lathe_status clamp(const lathe_device_update *u, lathe_kernel *kernel, char *grads)
{
    if (!kernel)
        return LATHE_OK;
    const void *const in[2] = {grads, &u->store->step->limit};
    void *const out[1] = {grads};
    const lathe_kernel_args args = {.size = (uint32_t)sizeof args,
                                    .in = in,
                                    .out = out,
                                    .scratch = u->scratch,
                                    .stream = u->m->stream};
    return u->m->dev->kernel_run(u->m->device->self, kernel, &args);
}

lathe_status lathe_device_update_clamp(lathe_device_update *u)
{
    LATHE_TRY(clamp(u, u->clamp[0], u->store->grads));
    return clamp(u, u->clamp[1], u->store->grads + u->store->wide_grad_bytes);
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
    const lathe_device_update *u = ctx;
    return u->m->dev->copy(u->m->device->self, u->m->stream, dst, src, bytes, direction);
}

static lathe_status queue_wait(void *ctx)
{
    return lathe_machine_sync(((const lathe_device_update *)ctx)->m);
}

lathe_status lathe_device_update_queue(lathe_device_update *u, int32_t k, int32_t what,
                                       const lathe_optimizer_step *step)
{
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

lathe_status lathe_device_update_figures(lathe_device_update *u, double *out_update2,
                                         double *out_param2)
{
    const int64_t n = 2 * u->n_chunks + u->n_matrix_sums;
    *out_update2 = *out_param2 = 0.0;
    LATHE_TRY(lathe_fetch_pinned(u->m, u->host_sums, u->sums, n * (int64_t)sizeof(double)));
    if (u->n_matrix_sums > 0) /* also waits for the copy above */
        LATHE_TRY(lathe_device_update_squares(u, LATHE_SQUARES_MASTERS, u->rows));
    else
        LATHE_TRY(lathe_machine_sync(u->m));
    for (int64_t c = 0; c < u->n_chunks; c++) {
        *out_update2 += u->host_sums[2 * c];
        *out_param2 += u->host_sums[2 * c + 1];
    }
    for (int64_t k = 2 * u->n_chunks; k < n; k++)
        *out_update2 += u->host_sums[k];
    if (u->n_matrix_sums == 0)
        return LATHE_OK;
    *out_param2 = 0.0;
    for (int32_t i = 0; i < u->store->n_rows; i++)
        *out_param2 += u->rows[i];
    return LATHE_OK;
}

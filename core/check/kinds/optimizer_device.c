/* Calls queue() as the core does, on guarded memory of a device. */
#include <string.h>

#include "base/error.h"
#include "check/harness/device_side.h"
#include "check/kinds/optimizer_case.h"

enum { SEED = 42, NAN_BYTE = 0xff }; /* fills memory whose content must not matter with NaN */

static lathe_status load(const lathe__optimizer_case *c)
{
    const lathe_machine *m = &c->s->device->machine;
    const lathe_elementwise_args args = {0};
    return m->dev->launch(m->device->self, m->stream, c->table->cuda_image,
                          LATHE_ELEMENTWISE_KERNEL, 0, LATHE_ELEMENTWISE_THREADS, &args,
                          (int64_t)sizeof args);
}

lathe_status lathe__optimizer_case_place(lathe__optimizer_case *c)
{
    lathe__optimizer_on_device *t = &c->device;
    lathe__subject *s = c->s;
    if (!LATHE_HAS(c->table, cuda_image))
        return lathe_error(LATHE_E_UNSUPPORTED, "it carries no code for a device (cuda_image)");
    if (!LATHE_HAS(s->device->machine.dev, launch))
        return lathe_error(LATHE_E_UNSUPPORTED, "the device offers no launch()");
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        const lathe_param_info info = lathe__optimizer_info(i);
        lathe_optimizer_room room = {0};
        t->n_sums +=
            2 * (lathe_queue_chunks(&c->tensors[i]) + 3); /* also if cut into three ranges */
        if (c->partition[i] == LATHE_PARTITION_MATRIX || !LATHE_HAS(c->table, queue) ||
            !LATHE_HAS(c->table, room))
            continue;
        c->table->room(c->instance.self, &info, &room);
        if (room.own < 0 || room.shared < 0 || room.host < 0)
            return lathe_error(LATHE_E_PLUGIN, "room() asks for %lld, %lld and %lld bytes",
                               (long long)room.own, (long long)room.shared, (long long)room.host);
        t->room.own += room.own;
        t->room.shared = room.shared > t->room.shared ? room.shared : t->room.shared;
        t->room.host = room.host > t->room.host ? room.host : t->room.host;
    }
    t->tensors = lathe__memory(s, LATHE__N_PIECES * (int64_t)sizeof *t->tensors);
    t->first_chunk = lathe__memory(s, (LATHE__N_PIECES + 1) * (int64_t)sizeof *t->first_chunk);
    t->averages = lathe__memory(s, LATHE__N_PIECES * (int64_t)sizeof *t->averages);
    t->counter = lathe__memory(s, 2 * (int64_t)sizeof *t->counter);
    t->scalars = lathe__memory(s, LATHE_N_SCALARS * (int64_t)sizeof *t->scalars);
    t->sums = lathe__memory(s, t->n_sums * (int64_t)sizeof *t->sums);
    t->own = lathe__memory(s, t->room.own);
    t->shared = lathe__memory(s, t->room.shared);
    t->host = lathe__pinned(s, t->room.host);
    return load(c);
}

/* ---- the functions that queue() calls ---- */

/* Counts a call; returns an error if it is the one that fails. */
static lathe_status called(lathe__optimizer_case *c)
{
    return ++c->device.n_calls == c->device.fails_at
               ? lathe_error(LATHE_E_DEVICE, "the device fails at call %d, to see what happens",
                             c->device.n_calls)
               : LATHE_OK;
}

static lathe_status launch(void *ctx, const char *kernel, int64_t n_blocks, const void *args,
                           int64_t args_bytes)
{
    lathe__optimizer_case *c = ctx;
    const lathe_machine *m = &c->s->device->machine;
    const int64_t max = c->device.max_blocks, before = lathe__heap();
    lathe_status status = called(c);
    if (status == LATHE_OK && n_blocks > 0)
        status = m->dev->launch(m->device->self, m->stream, c->table->cuda_image, kernel,
                                max > 0 && n_blocks > max ? max : n_blocks,
                                LATHE_ELEMENTWISE_THREADS, args, args_bytes);
    c->device.taken_on_device += lathe__heap() - before;
    return status;
}

static lathe_status copy(void *ctx, void *dst, const void *src, int64_t bytes, int32_t direction)
{
    lathe__optimizer_case *c = ctx;
    const lathe_machine *m = &c->s->device->machine;
    const int64_t before = lathe__heap();
    lathe_status status = called(c);
    if (status == LATHE_OK)
        status = m->dev->copy(m->device->self, m->stream, dst, src, bytes, direction);
    c->device.taken_on_device += lathe__heap() - before;
    return status;
}

static lathe_status wait_for_all(void *ctx)
{
    lathe__optimizer_case *c = ctx;
    const lathe_machine *m = &c->s->device->machine;
    const int64_t before = lathe__heap();
    lathe_status status = called(c);
    if (status == LATHE_OK && LATHE_HAS(m->dev, sync))
        status = m->dev->sync(m->device->self, m->stream);
    c->device.taken_on_device += lathe__heap() - before;
    return status;
}

/* ---- one call ---- */

/* Fills in the tensors with addresses of the device and the tables of their chunks; returns their
 * number. */
static int64_t fill_tables(lathe__optimizer_case *c, const lathe_optimizer_step *step,
                           float *const *out)
{
    lathe__optimizer_on_device *t = &c->device;
    lathe__subject *s = c->s;
    memset(t->averages, 0, LATHE__N_PIECES * sizeof *t->averages);
    for (int32_t i = 0; i < step->n_tensors; i++) {
        lathe_optimizer_tensor x = step->tensors[i];
        x.param = lathe__on_device(s, x.param);
        x.grad = lathe__on_device(s, x.grad);
        x.shadow = lathe__on_device(s, x.shadow);
        for (int k = 0; k < LATHE_MAX_SLOTS; k++)
            x.slots[k] = lathe__on_device(s, x.slots[k]);
        t->tensors[i] = x;
        t->first_chunk[i + 1] = t->first_chunk[i] + lathe_queue_chunks(&x);
        t->averages[i] = lathe__on_device(s, out[i]);
    }
    t->counter[0] = SEED;
    t->counter[1] = (uint64_t)step->step;
    memcpy(t->scalars, step->scalars, LATHE_N_SCALARS * sizeof *t->scalars);
    memset(t->sums, NAN_BYTE, (size_t)t->n_sums * sizeof *t->sums);
    memset(t->own, NAN_BYTE, (size_t)t->room.own);
    memset(t->shared, NAN_BYTE, (size_t)t->room.shared);
    memset(t->host, NAN_BYTE, (size_t)t->room.host);
    return t->first_chunk[step->n_tensors];
}

enum { N_INPUTS = 5 + LATHE__N_TENSORS };

typedef struct input {
    const char *name;
    const void *data;
    int64_t bytes;
    void *copy;
} input;

/* Lists the tables that kernels only read, and copies their content to memory that is not sent
 * to the device, so that a write to a table can be found. */
static void keep_inputs(lathe__optimizer_case *c, input *list)
{
    const lathe__optimizer_on_device *t = &c->device;
    const input tables[5] = {
        {"the tensors", t->tensors, LATHE__N_PIECES * (int64_t)sizeof *t->tensors, NULL},
        {"first_chunk", t->first_chunk, (LATHE__N_PIECES + 1) * (int64_t)sizeof *t->first_chunk,
         NULL},
        {"the addresses of the averages", t->averages,
         LATHE__N_PIECES * (int64_t)sizeof *t->averages, NULL},
        {"the counter", t->counter, 2 * (int64_t)sizeof *t->counter, NULL},
        {"the scalars", t->scalars, LATHE_N_SCALARS * (int64_t)sizeof *t->scalars, NULL}};
    memcpy(list, tables, sizeof tables);
    for (int i = 0; i < LATHE__N_TENSORS; i++)
        list[5 + i] = (input){"a gradient", c->grads[i], c->tensors[i].n * 4, NULL};
    for (int i = 0; i < N_INPUTS; i++) {
        list[i].copy = lathe__memory(c->s, list[i].bytes);
        memcpy(list[i].copy, list[i].data, (size_t)list[i].bytes);
    }
}

static lathe_status call(lathe__optimizer_case *c, const lathe_optimizer_step *step, int32_t what,
                         int64_t n_chunks)
{
    lathe__optimizer_on_device *t = &c->device;
    lathe__subject *s = c->s;
    lathe_optimizer_step mine = *step;
    mine.tensors = t->tensors;
    mine.scalars = t->scalars;
    mine.scratch = NULL;
    mine.scratch_bytes = 0;
    const lathe_elementwise_args args = {.tensors = lathe__on_device(s, t->tensors),
                                         .first_chunk = lathe__on_device(s, t->first_chunk),
                                         .scalars = lathe__on_device(s, t->scalars),
                                         .counter = lathe__on_device(s, t->counter),
                                         .n_chunks = n_chunks,
                                         .n_tensors = step->n_tensors,
                                         .sums = lathe__on_device(s, t->sums)};
    const lathe_optimizer_queue queued = {
        .size = (uint32_t)sizeof queued,
        .what = what,
        .step = &mine,
        .args = &args,
        .averages = what == LATHE_QUEUE_AVERAGE ? lathe__on_device(s, t->averages) : NULL,
        .own = lathe__on_device(s, t->own),
        .shared = lathe__on_device(s, t->shared),
        .host = t->host,
        .ctx = c,
        .launch = launch,
        .copy = copy,
        .wait = wait_for_all};
    LATHE_TRY(lathe__send(s));
    const int64_t outside = lathe__heap();
    t->taken_on_device = 0;
    const lathe_status status = LATHE_HAS(c->table, queue)
                                    ? c->table->queue(c->instance.self, &queued)
                                    : lathe_queue_elementwise(&queued);
    c->heap_blocks += lathe__heap() - outside - t->taken_on_device;
    LATHE_TRY(status);
    return lathe__fetch(s);
}

lathe_status lathe__optimizer_case_queue(lathe__optimizer_case *c, const lathe_optimizer_step *step,
                                         int32_t what, float *const *out)
{
    input inputs[N_INPUTS];
    const int64_t n_chunks = fill_tables(c, step, out);
    if (n_chunks == 0)
        return LATHE_OK;
    keep_inputs(c, inputs);
    LATHE_TRY(call(c, step, what, n_chunks));
    for (int i = 0; i < N_INPUTS; i++)
        if (!lathe__same(inputs[i].copy, inputs[i].data, inputs[i].bytes))
            c->device.was_input = inputs[i].name;
    return LATHE_OK;
}

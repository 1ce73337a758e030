/* Manages guarded memory in the host and on a device, and copies between them. */
#include "check/harness/device_side.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/print.h"
#include "exec/program/node_kernel.h"
#include "exec/program/op_node.h"
#include "graph/ir/op_info.h"

lathe_status lathe__device_side_open(lathe__device_side *d, const lathe_component *component)
{
    const lathe_device_v1 *table = component->plugin->table;
    const lathe_value *values;
    char why[256] = "";
    *d = (lathe__device_side){0};
    if (table->score(why, sizeof why) == LATHE_SCORE_NO)
        return lathe_error(LATHE_E_UNSUPPORTED, "device %s does not run here: %s",
                           component->plugin->name, why);
    lathe_status status = lathe__values_of(component->plugin, NULL, NULL, &d->arena, &values);
    if (status == LATHE_OK)
        status = lathe_instance_init(&d->instance, component, values);
    if (status == LATHE_OK)
        status = lathe_machine_init(&d->machine, &d->instance, LATHE_FLAG_DETERMINISTIC);
    if (status != LATHE_OK)
        lathe__device_side_close(d);
    return status;
}

void lathe__device_side_close(lathe__device_side *d)
{
    lathe_machine_fini(&d->machine);
    lathe_instance_fini(&d->instance);
    lathe_arena_fini(&d->arena);
    *d = (lathe__device_side){0};
}

static void *taken(const lathe__subject *s, int64_t bytes, int32_t memory)
{
    void *out = NULL;
    const lathe_machine *m = &s->device->machine;
    if (m->dev->alloc(m->device->self, bytes, memory, &out) != LATHE_OK) {
        lathe_print_to(stderr, "the conformance suite is out of memory: %s\n",
                       lathe_error_message());
        abort();
    }
    return out;
}

void *lathe__on_device(lathe__subject *s, const void *host)
{
    const unsigned char *at = host;
    lathe__guarded *b = s->guarded;
    if (host == NULL)
        return NULL;
    while (b != NULL && (at < b->middle || at > b->middle + b->bytes))
        b = b->next;
    if (b == NULL) {
        lathe_print_text(stderr, "the conformance suite asks for memory that is not its own\n");
        abort();
    }
    if (b->device == NULL)
        b->device = taken(s, b->bytes + 2 * LATHE__GUARD, LATHE_MEM_DEVICE);
    return (unsigned char *)b->device + LATHE__GUARD + (at - b->middle);
}

void *lathe__pinned(lathe__subject *s, int64_t bytes)
{
    void *raw = taken(s, bytes + 3 * LATHE__GUARD, LATHE_MEM_HOST_PINNED);
    lathe__guarded *b = lathe__guard(s, raw, bytes);
    b->pinned = raw;
    return b->middle;
}

static lathe_status copy_all(const lathe__subject *s, int32_t direction)
{
    const lathe_machine *m = &s->device->machine;
    const int is_up = direction == LATHE_COPY_TO_DEVICE;
    for (const lathe__guarded *b = s->guarded; b != NULL; b = b->next) {
        unsigned char *const host = b->middle - LATHE__GUARD;
        if (b->device != NULL)
            LATHE_TRY(m->dev->copy(m->device->self, m->stream, is_up ? b->device : host,
                                   is_up ? host : b->device, b->bytes + 2 * LATHE__GUARD,
                                   direction));
    }
    return LATHE_HAS(m->dev, sync) ? m->dev->sync(m->device->self, m->stream) : LATHE_OK;
}

lathe_status lathe__send(lathe__subject *s)
{
    return copy_all(s, LATHE_COPY_TO_DEVICE);
}

lathe_status lathe__fetch(lathe__subject *s)
{
    return copy_all(s, LATHE_COPY_TO_HOST);
}

void lathe__device_side_release(lathe__subject *s)
{
    if (s->device == NULL)
        return;
    const lathe_machine *m = &s->device->machine;
    if (LATHE_HAS(m->dev, sync)) /* a check that failed may have left work in the queue */
        (void)m->dev->sync(m->device->self, m->stream);
    for (const lathe__guarded *b = s->guarded; b != NULL; b = b->next) {
        if (b->device != NULL)
            m->dev->free(m->device->self, b->device);
        if (b->pinned != NULL)
            m->dev->free(m->device->self, b->pinned);
    }
    s->guarded = NULL;
}

/* ---- graphs ---- */

static lathe_status has_op_kernel(const lathe_machine *m, const lathe_graph *g,
                                  const lathe_ir_node *n)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_op_node *node = NULL;
    int64_t scratch_bytes = 0;
    const lathe_status status = lathe_op_node_prepare(m, g, n, &arena, &node, &scratch_bytes);
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe__has_kernels(const lathe__subject *s, const lathe_graph *g)
{
    for (int32_t i = 0; s->device != NULL && i < g->n_nodes; i++) {
        const lathe_machine *m = &s->device->machine;
        const lathe_op_info *info = lathe_op_info_get(g->nodes[i].op);
        lathe_kernel *kernel = NULL;
        int64_t scratch_bytes = 0;
        if (info->runs_on == LATHE_RUNS_ATTENTION || info->runs_on == LATHE_RUNS_QUANT)
            continue;
        const lathe_status status =
            info->runs_on == LATHE_RUNS_OP
                ? has_op_kernel(m, g, &g->nodes[i])
                : lathe_node_kernel(m, g, &g->nodes[i], &kernel, &scratch_bytes);
        if (status != LATHE_OK)
            return lathe_error_context(status, "node %d, %s '%s'", i, info->name,
                                       g->nodes[i].label);
        if (kernel != NULL)
            m->dev->kernel_destroy(m->device->self, kernel);
    }
    return LATHE_OK;
}

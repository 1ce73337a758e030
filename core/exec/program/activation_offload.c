/* Copies activations to host memory after the forward and back before the backward. */
#include "exec/program/activation_offload.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/ir/op_info.h"

lathe_status lathe_value_offload_place(lathe_value_offload *o, lathe_machine *m,
                                       const lathe_graph *g, int64_t host_bytes)
{
    void *memory = NULL;
    if (host_bytes == 0)
        return LATHE_OK;
    o->m = m;
    o->g = g;
    o->done = calloc((size_t)g->n_values, sizeof(lathe_event *));
    if (!o->done)
        return lathe_error(LATHE_E_NOMEM, "no memory for the events of %d values", g->n_values);
    LATHE_TRY(lathe_machine_alloc(m, LATHE_MEM_OFFLOAD, host_bytes, &memory));
    o->host = memory;
    o->host_bytes = host_bytes;
    return lathe_machine_sides(m);
}

void lathe_value_offload_fini(lathe_value_offload *o)
{
    lathe_machine *m = o->m;
    if (!m)
        return;
    (void)lathe_machine_sync(m); /* a captured copy runs on the machine's stream */
    if (m->in)
        (void)m->dev->sync(m->device->self, m->in);
    if (m->out)
        (void)m->dev->sync(m->device->self, m->out);
    for (lathe_val v = 0; o->done && v < o->g->n_values; v++)
        if (o->done[v])
            m->dev->event_destroy(m->device->self, o->done[v]);
    if (o->mark)
        m->dev->event_destroy(m->device->self, o->mark);
    lathe_machine_free(m, LATHE_MEM_OFFLOAD, o->host_bytes, o->host);
    free(o->done);
    memset(o, 0, sizeof *o);
}

static int64_t bytes_of(const lathe_value_offload *o, lathe_val v)
{
    return lathe_desc_bytes(&o->g->values[v].desc);
}

/* Queues a copy on a copy stream, after the work queued on the machine's stream; `done` marks the
 * end of the copy. */
static lathe_status copy_beside(lathe_value_offload *o, lathe_stream *beside, lathe_val made,
                                const void *from, void *to, int32_t direction)
{
    const lathe_device_v1 *dev = o->m->dev;
    void *self = o->m->device->self;
    LATHE_TRY(dev->event_record(self, o->m->stream, &o->mark));
    LATHE_TRY(dev->event_wait(self, beside, o->mark));
    LATHE_TRY(dev->copy(self, beside, to, from, bytes_of(o, made), direction));
    return dev->event_record(self, beside, &o->done[made]);
}

lathe_status lathe_value_offload_run(lathe_value_offload *o, const lathe_ir_node *n,
                                     const void *from, void *to)
{
    switch (n->op) {
    case LATHE_OP_COPY_OUT:
        return copy_beside(o, o->m->out, n->out[0], from, to, LATHE_COPY_TO_HOST);
    case LATHE_OP_COPY_IN:
        return copy_beside(o, o->m->in, n->out[0], from, to, LATHE_COPY_TO_DEVICE);
    default: /* WAIT_OUT, WAIT_IN */
        return o->m->dev->event_wait(o->m->device->self, o->m->stream, o->done[n->in[0]]);
    }
}

void lathe_value_offload_count(lathe_value_offload *o, int32_t begin, int32_t end)
{
    for (int32_t i = begin; i < end && o->m; i++)
        if (o->g->nodes[i].op == LATHE_OP_COPY_OUT || o->g->nodes[i].op == LATHE_OP_COPY_IN)
            o->moved += bytes_of(o, o->g->nodes[i].out[0]);
}

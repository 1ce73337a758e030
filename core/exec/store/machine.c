/* The machine of a run: counts memory by category, and chooses the attention backend by its
 * score. */
#include "exec/store/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "plug/answers.h"

const char *lathe_mem_name(int32_t category)
{
    static const char *const names[LATHE_N_MEM] = {
        "parameters", "gradients",  "optimizer", "quantized", "activations", "scratch",
        "cache",      "checkpoint", "average",   "staging",   "offload",     "models"};
    return category >= 0 && category < LATHE_N_MEM ? names[category] : "?";
}

int32_t lathe_mem_is_host(int32_t category)
{
    return category == LATHE_MEM_STAGING || category == LATHE_MEM_CHECKPOINT ||
           category == LATHE_MEM_OFFLOAD;
}

int64_t lathe_mem_total(const lathe_mem_bytes *bytes)
{
    int64_t total = 0;
    for (int32_t i = 0; i < LATHE_N_MEM; i++)
        total += bytes->by[i];
    return total;
}

/* A device without streams does its work in the call, as the CPU does; m->stream is NULL then. */
lathe_status lathe_machine_init(lathe_machine *m, const lathe_instance *device, uint32_t flags)
{
    memset(m, 0, sizeof *m);
    m->device = device;
    m->dev = device->table;
    m->flags = flags;
    m->n_threads = lathe_parallel_threads();
    m->info.size = (uint32_t)sizeof m->info;
    LATHE_TRY(lathe_answer_device_info(m->device, &m->info));
    return LATHE_HAS(m->dev, stream_create) ? m->dev->stream_create(m->device->self, &m->stream)
                                            : LATHE_OK;
}

void lathe_machine_fini(lathe_machine *m)
{
    lathe_stream *const streams[3] = {m->in, m->out, m->stream};
    for (int i = 0; i < 3; i++)
        if (streams[i])
            m->dev->stream_destroy(m->device->self, streams[i]);
    m->stream = m->in = m->out = NULL;
    free(m->tensor);
    m->tensor = NULL;
    m->tensor_bytes = 0;
}

/* Events order the copy streams after the work stream and the other way round; a device that lacks
 * a part of them is treated as one without. */
int lathe_machine_has_events(const lathe_machine *m)
{
    return LATHE_HAS(m->dev, stream_create) && LATHE_HAS(m->dev, event_record) &&
           LATHE_HAS(m->dev, event_wait) && LATHE_HAS(m->dev, event_destroy);
}

lathe_status lathe_machine_sides(lathe_machine *m)
{
    if (!m->in)
        LATHE_TRY(m->dev->stream_create(m->device->self, &m->in));
    return m->out ? LATHE_OK : m->dev->stream_create(m->device->self, &m->out);
}

lathe_status lathe_machine_sync(lathe_machine *m)
{
    m->n_syncs++;
    return LATHE_HAS(m->dev, sync) ? m->dev->sync(m->device->self, m->stream) : LATHE_OK;
}

lathe_status lathe_machine_settle(lathe_machine *m)
{
    return lathe_machine_memory(m)->is_queued ? lathe_machine_sync(m) : LATHE_OK;
}

/* Where the device has memory of its own, host memory is another budget and does not count. */
int32_t lathe_machine_counts(const lathe_machine *m, int32_t category)
{
    return lathe_machine_memory(m)->is_of_host || !lathe_mem_is_host(category);
}

int64_t lathe_machine_total(const lathe_machine *m, const lathe_mem_bytes *bytes)
{
    int64_t total = 0;
    for (int32_t i = 0; i < LATHE_N_MEM; i++)
        if (lathe_machine_counts(m, i))
            total += bytes->by[i];
    return total;
}

static void count(lathe_machine *m, int32_t category, int64_t bytes)
{
    m->used.by[category] += bytes;
    if (m->used.by[category] > m->peak.by[category])
        m->peak.by[category] = m->used.by[category];
}

lathe_status lathe_machine_alloc(lathe_machine *m, int32_t category, int64_t bytes, void **out)
{
    *out = NULL;
    if (bytes == 0)
        return LATHE_OK;
    /* pinned, because the device copies to and from it without the CPU */
    const int32_t memory = lathe_mem_is_host(category) ? LATHE_MEM_HOST_PINNED : LATHE_MEM_DEVICE;
    const lathe_status status = m->dev->alloc(m->device->self, bytes, memory, out);
    if (status != LATHE_OK)
        return lathe_error_context(status, "%lld bytes for %s", (long long)bytes,
                                   lathe_mem_name(category));
    count(m, category, bytes);
    return LATHE_OK;
}

void lathe_machine_free(lathe_machine *m, int32_t category, int64_t bytes, void *memory)
{
    if (!memory)
        return;
    m->dev->free(m->device->self, memory);
    m->used.by[category] -= bytes;
}

/* Moves bytes to another category. The peak of the old one falls with them, or the sum of all peaks
 * would count them twice. */
void lathe_machine_recount(lathe_machine *m, int32_t from, int32_t to, int64_t bytes)
{
    m->used.by[from] -= bytes;
    if (m->peak.by[from] > m->used.by[from])
        m->peak.by[from] = m->used.by[from];
    count(m, to, bytes);
}

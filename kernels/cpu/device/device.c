/* Entry of the CPU device plugin: its function table and its instance. */
#include <stdio.h>
#include <unistd.h>

#include "base/memory.h"
#include "device/functions.h"
#include "lathe/plugin.h"
#include "products/onednn.h"

static lathe_status info(void *self, lathe_device_info *out)
{
    const cpu_device *device = self;
    lathe_device_info full = {.size = out->size, .host_memory = LATHE_MEMORY_HOST};
    full.n_workers = device->host->n_threads();
    cpu_brand(full.model);
    (void)snprintf(full.isa, sizeof full.isa, "%s", LATHE_CPU_ISA_NAME);
    full.memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    full.compute_dtypes = 1u << LATHE_F32 | 1u << LATHE_BF16; /* bf16 is at least as fast as f32 */
    full.packed_weights = 1;
    full.activations = 1u << LATHE_I8;
    full.graph_dtypes = 1u << LATHE_F32 | 1u << LATHE_BF16 | 1u << LATHE_F16;
    memcpy(out, &full, out->size < sizeof full ? out->size : sizeof full);
    return LATHE_OK;
}

static lathe_status sync_device(void *self, lathe_stream *stream)
{
    (void)self;
    (void)stream;
    return LATHE_OK;
}

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    (void)values;
    (void)n_values;
    cpu_device *device = host->alloc((int64_t)sizeof *device);
    if (device == NULL)
        return lathe_fail(host, LATHE_E_NOMEM, "no memory for the device instance");
    device->host = host;
    const lathe_status status = cpu_onednn_create(host, &device->onednn);
    if (status != LATHE_OK) {
        host->free(device);
        return status;
    }
    *out_self = device;
    return LATHE_OK;
}

static void destroy(void *self)
{
    cpu_device *device = self;
    if (device == NULL)
        return;
    const lathe_host *host = device->host;
    cpu_onednn_destroy(host, device->onednn);
    host->free(device);
}

static const lathe_device_v1 table = {
    .size = (uint32_t)sizeof(lathe_device_v1),
    .revision = LATHE_DEVICE_REVISION,
    .score = cpu_score,
    .info = info,
    .alloc = cpu_memory_alloc,
    .free = cpu_memory_free,
    .copy = cpu_memory_copy,
    .sync = sync_device,
    .kernel_create = cpu_kernel_create,
    .kernel_destroy = cpu_kernel_destroy,
    .kernel_run = cpu_kernel_run,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_DEVICE,
    .revision = LATHE_DEVICE_REVISION,
    .name = "cpu_" LATHE_CPU_ISA_NAME,
    .family = "cpu",
    .version = "0.1.0",
    .summary = "x86-64 processors with " LATHE_CPU_ISA_NAME ": oneDNN products, own kernels",
    .source = "ours; matrix products by oneDNN",
    .license = "Apache-2.0",
    .table = &table,
    .create = create,
    .destroy = destroy,
};

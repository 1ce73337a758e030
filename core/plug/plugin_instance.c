/* Makes instances of plugins. */
#include "plug/plugin_instance.h"
#include "plug/host_table.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "lathe/attention.h"
#include "plug/call_watch.h"
#include "plug/kind.h"
#include "plug/so.h"

/* Puts the kind and the name before the plugin's message. */
static lathe_status name_plugin(lathe_status status, const lathe_plugin *plugin)
{
    return lathe_error_context(status, "%s %s", lathe_kind_name(plugin->kind), plugin->name);
}

lathe_status lathe_instance_init(lathe_instance *instance, const lathe_component *component,
                                 const lathe_value *values)
{
    const lathe_plugin *plugin = component->plugin;
    memset(instance, 0, sizeof *instance);
    void *self = NULL;
    if (LATHE_HAS(plugin, create)) {
        lathe_error_clear();
        /* create() of hardware has no time limit: it may wait for a driver that compiles. */
        const int is_hardware =
            plugin->kind == LATHE_KIND_DEVICE || plugin->kind == LATHE_KIND_COLLECTIVE;
        lathe_so_set_at_work(component->path);
        lathe_call_begin(is_hardware ? NULL : component->path, "create()");
        const lathe_status status =
            plugin->create(lathe_host_get(), values, plugin->n_fields, &self);
        lathe_call_end();
        lathe_so_set_at_work(NULL);
        if (status != LATHE_OK && lathe_error_message()[0] == '\0')
            return lathe_error(status, "%s %s: %s", lathe_kind_name(plugin->kind), plugin->name,
                               lathe_status_text(status));
        if (status != LATHE_OK)
            return name_plugin(status, plugin);
    }
    instance->component = component;
    instance->table = plugin->table;
    instance->self = self;
    instance->values = values;
    return LATHE_OK;
}

void lathe_instance_fini(lathe_instance *instance)
{
    if (instance->component != NULL && LATHE_HAS(instance->component->plugin, destroy))
        instance->component->plugin->destroy(instance->self);
    memset(instance, 0, sizeof *instance);
}

int lathe_attention_takes_plain(const lathe_instance *instance, const char *isa,
                                int32_t host_memory)
{
    enum { T = 64, H = 4, D = 64 };
    const lathe_attention_v1 *table = instance->table;
    char why[256] = "";
    lathe_device_info device = {.size = (uint32_t)sizeof device,
                                .n_workers = 1,
                                .host_memory = host_memory,
                                .compute_dtypes = 1u << LATHE_F32 | 1u << LATHE_BF16};
    (void)snprintf(device.isa, sizeof device.isa, "%s", isa);
    device.graph_dtypes = device.compute_dtypes;
    const lathe_attention_problem problem = {.size = (uint32_t)sizeof problem,
                                             .dtype = LATHE_BF16,
                                             .batch = 1,
                                             .t_q = T,
                                             .t_k = T,
                                             .n_heads = H,
                                             .n_kv_heads = H,
                                             .head_dim = D,
                                             .causal = 1,
                                             .n_threads = 1,
                                             .scale = 0.125f,
                                             .q_stride = H * D,
                                             .k_stride = H * D,
                                             .v_stride = H * D,
                                             .o_stride = H * D,
                                             .dq_stride = H * D,
                                             .dk_stride = H * D,
                                             .dv_stride = H * D,
                                             .need_backward = 1,
                                             .device = &device};
    return LATHE_HAS(table, score) &&
           table->score(instance->self, &problem, why, sizeof why) > LATHE_SCORE_NO;
}

/* Finds the devices on which a plugin works, from the code that it contains. */
#include "cmd/plugins/plugin_devices.h"

#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "lathe/op_plugin.h"
#include "lathe/quant.h"
#include "plug/select.h"
#include "run/parts/device_check.h"

static lathe_status ask_attention(lathe_registry *registry, const lathe_component *component,
                                  int *out_cpu, int *out_cuda)
{
    static const char *const gpus[] = {"sm_90", "sm_80", "sm_89", "sm_100"};
    lathe_diags diags = {0};
    lathe_config *defaults = NULL;
    const lathe_value *values = NULL;
    lathe_instance instance;
    lathe_status status =
        lathe_config_load(NULL, NULL, 0, 1u << LATHE_KIND_ATTENTION, registry, &diags, &defaults);
    if (status != LATHE_OK)
        goto out;
    if ((status = lathe_config_bind(defaults, LATHE_KIND_ATTENTION, component, &diags, &values)) !=
        LATHE_OK)
        goto out;
    if ((status = lathe_instance_init(&instance, component, values)) != LATHE_OK)
        goto out;
    *out_cpu = lathe_attention_takes_plain(&instance, "avx2", 1);
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0] && !*out_cuda; i++)
        *out_cuda = lathe_attention_takes_plain(&instance, gpus[i], 0);
    lathe_instance_fini(&instance);
out:
    lathe_config_destroy(defaults);
    lathe_diags_fini(&diags);
    return status;
}

/* A kernel for host memory, and one in an image. */
static void ask_op(const lathe_op_v1 *op, int *out_cpu, int *out_cuda)
{
    *out_cpu = 0;
    for (int32_t i = 0; i < op->n_kernels; i++) {
        *out_cpu |= op->kernels[i].run != NULL;
        *out_cuda |= op->kernels[i].image != NULL;
    }
}

lathe_status lathe_plugin_devices(lathe_registry *registry, const lathe_component *component,
                                  const char *out[LATHE_DEVICES_MOST])
{
    const lathe_plugin *plugin = component->plugin;
    const lathe_quant_v1 *quant = plugin->table;
    int cpu = 1, cuda = 0, n = 0;
    memset(out, 0, LATHE_DEVICES_MOST * sizeof *out);
    switch (plugin->kind) {
    case LATHE_KIND_OPTIMIZER:
        cuda = lathe__optimizer_runs_on_device(plugin->table);
        break;
    case LATHE_KIND_QUANT:
        cuda = LATHE_HAS(quant, cuda_image);
        break;
    case LATHE_KIND_ATTENTION:
        LATHE_TRY(ask_attention(registry, component, &cpu, &cuda));
        break;
    case LATHE_KIND_OP:
        ask_op(plugin->table, &cpu, &cuda);
        break;
    case LATHE_KIND_DEVICE:
        out[0] = plugin->family ? plugin->family : plugin->name;
        return LATHE_OK;
    default:
        out[0] = "any";
        return LATHE_OK;
    }
    if (cpu)
        out[n++] = "cpu";
    if (cuda)
        out[n++] = "cuda";
    return LATHE_OK;
}

lathe_status lathe_plugin_devices_text(lathe_registry *registry, const lathe_component *component,
                                       char *out, int64_t out_bytes)
{
    const char *names[LATHE_DEVICES_MOST];
    LATHE_TRY(lathe_plugin_devices(registry, component, names));
    (void)snprintf(out, (size_t)out_bytes, "%s%s%s", names[0] ? names[0] : "-",
                   names[0] && names[1] ? "," : "", names[0] && names[1] ? names[1] : "");
    return LATHE_OK;
}

/* Checks that the run's parts can work on its device. */
#include "run/parts/device_check.h"

#include <stdio.h>

#include "base/error.h"
#include "run/parts/curvature_check.h"

/* Whether the optimizer's step() is needed: there is a parameter that is not MATRIX. */
static int steps(const lathe_store *store)
{
    for (int32_t i = 0; i < store->n_rows; i++)
        if (store->params->rows[i]->trainable && store->rows[i].partition != LATHE_PARTITION_MATRIX)
            return 1;
    return 0;
}

/* Says why the optimizer cannot run on such a device; NULL: it can. */
static const char *host_code(const lathe_run *run)
{
    const lathe_optimizer_v1 *table = run->parts.optimizer.table;
    const int32_t is_queued = LATHE_HAS(table, cuda_image) && LATHE_HAS(table, queue);
    if (LATHE_HAS(table, average) && !is_queued)
        return "it averages the weights on the host";
    if (lathe__curvature_every(run) > 0 && !is_queued)
        return "it estimates curvature on the host";
    if (steps(&run->store) && !LATHE_HAS(table, cuda_image))
        return "it updates on the host (no code for other devices is built in)";
    return steps(&run->store) && !LATHE_HAS(run->machine.dev, launch)
               ? "the device launches no code"
               : NULL;
}

int32_t lathe__optimizer_runs_on_device(const lathe_optimizer_v1 *table)
{
    return LATHE_HAS(table, cuda_image) &&
           (LATHE_HAS(table, queue) ||
            (!LATHE_HAS(table, average) && !LATHE_HAS(table, estimate_every)));
}

/* Lists the optimizers with code for such a device: "adamw, muon". */
static lathe_status put_others(lathe_registry *registry, lathe_buffer *out)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_component **list = NULL;
    int64_t n = 0;
    int any = 0;
    lathe_status status = lathe_registry_scan(registry, LATHE_KIND_OPTIMIZER);
    if (status == LATHE_OK)
        status = lathe_registry_list(registry, LATHE_KIND_OPTIMIZER, &arena, &list, &n);
    for (int64_t i = 0; i < n && status == LATHE_OK; i++)
        if (lathe__optimizer_runs_on_device(list[i]->plugin->table))
            lathe_buffer_printf(out, "%s%s", any++ ? ", " : "", list[i]->plugin->name);
    if (!any)
        lathe_buffer_puts(out, "none of those installed");
    lathe_arena_fini(&arena);
    return status;
}

lathe_status lathe__device_check(const lathe_run *run)
{
    lathe_diags diags = {0};
    const char *why = lathe_machine_memory(&run->machine)->runs_host_code ? NULL : host_code(run);
    if (why == NULL)
        return LATHE_OK;
    lathe_buffer others = LATHE_BUFFER_INIT;
    lathe_status status = put_others(run->registry, &others);
    if (status == LATHE_OK)
        lathe_config_add(run->config, &diags, LATHE_DIAG_ERROR, "optimizer", "name",
                         "optimizer \"%s\" cannot run on device \"%s\", whose memory the host "
                         "cannot access: %s; these can: %s",
                         run->parts.optimizer.component->plugin->name,
                         run->parts.device.component->plugin->name, why, others.data);
    lathe_buffer_fini(&others);
    if (status == LATHE_OK)
        status = lathe_diags_status(&diags);
    lathe_diags_fini(&diags);
    return status;
}

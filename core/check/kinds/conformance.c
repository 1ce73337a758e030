/* Runs the checks of a plugin's kind, one after the other. */
#include "check/kinds/conformance.h"

#include "base/error.h"
#include "check/device/device_checks.h"
#include "check/harness/device_side.h"
#include "check/harness/imports.h"
#include "check/harness/process_state.h"
#include "check/kinds/checks.h"
#include "plug/op_library.h"

static const lathe__check *checks_of(int32_t kind, int on_device)
{
    switch (kind) {
    case LATHE_KIND_OPTIMIZER:
        return on_device ? lathe__checks_optimizer_device() : lathe__checks_optimizer();
    case LATHE_KIND_SCHEDULER:
        return lathe__checks_scheduler();
    case LATHE_KIND_QUANT:
        return on_device ? lathe__checks_quant_device() : lathe__checks_quant();
    case LATHE_KIND_ADAPTER:
        return lathe__checks_adapter();
    case LATHE_KIND_STAGE:
        return lathe__checks_stage();
    case LATHE_KIND_ATTENTION:
        return lathe__checks_attention();
    case LATHE_KIND_DEVICE:
        return lathe__checks_device();
    case LATHE_KIND_MODEL:
        return lathe__checks_model();
    case LATHE_KIND_RENDERER:
        return lathe__checks_renderer();
    case LATHE_KIND_READER:
        return lathe__checks_reader();
    case LATHE_KIND_REWARD:
        return lathe__checks_reward();
    case LATHE_KIND_COLLECTIVE:
        return lathe__checks_collective();
    case LATHE_KIND_OP:
        return lathe__checks_op();
    default:
        return NULL;
    }
}

static void run_one(lathe__subject *s, const lathe__check *check, const lathe_report *report,
                    lathe_conformance_totals *totals)
{
    report->begin(report->arg, check->name);
    s->note[0] = '\0';
    s->check = check;
    s->guarded = NULL;
    lathe_error_clear();
    /* Driver and libraries of a device or a transport have their own files and threads, which are
     * not counted. */
    const int counts = s->plugin->kind != LATHE_KIND_DEVICE &&
                       s->plugin->kind != LATHE_KIND_COLLECTIVE && s->device == NULL;
    lathe__process_state before, after;
    lathe__process_state_read(&before, counts);
    lathe_status status = check->run(s);
    lathe__process_state_read(&after, counts);
    if (status == LATHE_OK)
        status = lathe__guards(s);
    if (status == LATHE_OK || status == LATHE__SKIP) {
        const lathe_status left = lathe__process_state_compare(&before, &after);
        status = left != LATHE_OK ? left : status;
    }
    lathe__process_state_restore(&before);
    if (status == LATHE__SKIP) {
        totals->skipped++;
        report->end(report->arg, LATHE_CHECK_SKIPPED, s->note);
    } else if (status == LATHE_OK) {
        totals->ok++;
        report->end(report->arg, LATHE_CHECK_OK, s->note);
    } else {
        const char *message = lathe_error_message();
        totals->failed++;
        report->end(report->arg, LATHE_CHECK_FAILED,
                    message[0] ? message : lathe_status_text(status));
    }
    lathe__device_side_release(s);
    lathe_arena_fini(&s->arena);
}

lathe_status lathe_conformance_run(const lathe_component *component,
                                   const lathe_conformance_setup *setup, const lathe_report *report,
                                   lathe_conformance_totals *out)
{
    const lathe_plugin *plugin = component->plugin;
    const lathe_component *device = setup != NULL ? setup->device : NULL;
    lathe__subject s = {.component = component,
                        .plugin = plugin,
                        .table = plugin->table,
                        .settings = setup != NULL ? setup->settings : NULL};
    lathe__device_side side = {0};
    lathe_registry *registry = NULL;
    *out = (lathe_conformance_totals){0};
    lathe__imports_watch(plugin);
    LATHE_TRY(lathe_registry_create(&registry)); /* for ops that the plugin's graphs name */
    s.ops = lathe_registry_ops(registry);
    lathe_status status = device != NULL ? lathe__device_side_open(&side, device) : LATHE_OK;
    if (status != LATHE_OK) {
        lathe_registry_destroy(registry);
        return status;
    }
    s.device =
        device != NULL && !lathe_machine_memory(&side.machine)->runs_host_code ? &side : NULL;
    const lathe__check *const lists[] = {
        lathe__checks_common(), checks_of(plugin->kind, s.device != NULL),
        plugin->kind == LATHE_KIND_DEVICE  ? lathe__checks_kernels()
        : plugin->kind == LATHE_KIND_STAGE ? lathe__checks_iterate()
        : plugin->kind == LATHE_KIND_OP    ? lathe__checks_op_state()
                                           : NULL};
    for (int i = 0; i < 3 && status == LATHE_OK; i++) {
        if (lists[i] == NULL && i < 2)
            status = lathe_error(LATHE_E_ARG, "no checks for kind %d", plugin->kind);
        for (const lathe__check *check = lists[i]; check != NULL && check->name != NULL; check++) {
            run_one(&s, check, report, out);
            if (out->failed > 0 && setup != NULL && setup->first_failure)
                break;
        }
        if (out->failed > 0 && setup != NULL && setup->first_failure)
            break;
    }
    lathe__device_side_close(&side);
    lathe_registry_destroy(registry);
    return status;
}

/* Decides what train.offload_optimizer and train.offload_activations move to host memory. */
#include "run/decide/run_check.h"

#include "run/state/run_state.h"

/* Checks an option of [train] that moves `what` to host memory. On a device that uses host
 * memory anyway, the option changes nothing, which is logged. */
static lathe_status check_offload(const lathe_run *run, const char *key, const char *what,
                                  int32_t *out_moves)
{
    const char *device = run->parts.device.component->plugin->name;
    *out_moves = 0;
    if (lathe_machine_memory(&run->machine)->is_of_host) {
        lathe__run_warn(
            run, "train", key,
            "train.%s changes nothing: device \"%s\" uses host memory, and the %s in it already",
            key, device, what);
        return LATHE_OK;
    }
    if (!lathe_machine_has_events(&run->machine))
        return lathe__run_refuse(run, "train", key,
                                 "train.%s: device \"%s\" has no streams with events, which copies "
                                 "during the computation need",
                                 key, device);
    *out_moves = 1;
    return LATHE_OK;
}

lathe_status lathe__offload_plan_state(lathe_run *run)
{
    int32_t moves = 0;
    if (run->set.offload_optimizer)
        LATHE_TRY(check_offload(run, "offload_optimizer", "optimizer's state is", &moves));
    if (moves)
        run->store.offload_buffer = run->set.offload_buffer > 0 ? run->set.offload_buffer : 1;
    return LATHE_OK;
}

lathe_status lathe__offload_plan_activations(lathe_run *run)
{
    if (!run->set.offload_activations)
        return LATHE_OK;
    LATHE_TRY(
        check_offload(run, "offload_activations", "activations are", &run->programs.offloads));
    if (run->programs.offloads && run->machine.captures && run->set.capture == LATHE_CAPTURE_ON &&
        !run->machine.info.capture_events)
        return lathe__run_refuse(run, "train", "capture",
                                 "train.capture = \"on\": the captures of device \"%s\" cannot "
                                 "contain events, which train.offload_activations needs",
                                 run->parts.device.component->plugin->name);
    return LATHE_OK;
}

void lathe__offload_warn_idle(const lathe_run *run)
{
    if (run->programs.offloads && run->programs.train.n_offloaded == 0)
        lathe__run_warn(run, "train", "offload_activations",
                        "train.offload_activations changes nothing: the backward of a model of "
                        "%lld layer%s needs the activations immediately after the forward",
                        (long long)run->model.n_layers, run->model.n_layers == 1 ? "" : "s");
}

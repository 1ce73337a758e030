/* Checks the settings of [moe] against what the model's family reports. */
#include "run/decide/moe_check.h"

#include <string.h>

static int reports(const lathe_stage_loss *stage, const char *name)
{
    for (int32_t i = 0; i < stage->n_metrics; i++)
        if (strcmp(stage->metrics[i].name, name) == 0)
            return 1;
    return 0;
}

/* The bias moves in the model itself: what is saved must hold it, and all that compute with one
 * model must move it alike. */
static lathe_status check_rate(const lathe_run *run)
{
    const lathe_adapter_v1 *adapter =
        run->parts.adapter.component ? run->parts.adapter.table : NULL;
    if (run->set.moe.bias_rate == 0.0)
        return LATHE_OK;
    if (run->programs.train.n_loads == 0)
        return lathe__run_refuse(run, "moe", "bias_rate",
                                 "moe.bias_rate is %g, and no router of model family %s has a "
                                 "correction bias: leave the key out, or balance with "
                                 "moe.balance_loss",
                                 run->set.moe.bias_rate, run->model.family.component->plugin->name);
    if (LATHE_HAS(adapter, base_is_frozen) && adapter->base_is_frozen(run->parts.adapter.self))
        return lathe__run_refuse(run, "moe", "bias_rate",
                                 "moe.bias_rate is %g, and adapter \"%s\" saves no weights of the "
                                 "model, so the moved biases would be lost: leave the key out, or "
                                 "train with adapter.name = \"full\" or \"freeze\"",
                                 run->set.moe.bias_rate,
                                 run->parts.adapter.component->plugin->name);
    if (run->set.diloco_islands > 0)
        return lathe__run_refuse(run, "moe", "bias_rate",
                                 "moe.bias_rate is %g, and parallel.diloco_islands averages what "
                                 "the optimizer trains alone: the biases of the islands would "
                                 "drift apart; leave one of the keys out",
                                 run->set.moe.bias_rate);
    return LATHE_OK;
}

lathe_status lathe__moe_check(const lathe_run *run)
{
    static const struct {
        const char *key, *report;
    } needs[] = {{"balance_loss", "router_aux_loss"},
                 {"balance_over", "router_aux_loss"},
                 {"z_loss", "router_z_loss"}};
    if (run->programs.train.graph == NULL && run->programs.train.exec == NULL)
        return LATHE_OK; /* nothing trains */
    if (lathe_config_is_explicit(run->config, "moe", "balance_over") &&
        !lathe_config_is_explicit(run->config, "moe", "balance_loss") &&
        !reports(&run->programs.train.stage, "router_aux_loss"))
        return lathe__run_refuse(run, "moe", "balance_over",
                                 "moe.balance_over says how moe.balance_loss is computed, which is "
                                 "not set: model family %s computes no such loss unasked",
                                 run->model.family.component->plugin->name);
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        if (lathe_config_is_explicit(run->config, "moe", needs[i].key) &&
            !reports(&run->programs.train.stage, needs[i].report))
            return lathe__run_refuse(
                run, "moe", needs[i].key,
                "moe.%s is set, and model family %s reports no %s: the model has no experts, or "
                "its family has no such loss; leave the key out",
                needs[i].key, run->model.family.component->plugin->name, needs[i].report);
    return check_rate(run);
}

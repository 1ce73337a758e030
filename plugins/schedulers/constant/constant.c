/* The base rate at every step: lr(t) = base. No warm-up: that is constant_with_warmup.
 * Source: transformers get_constant_schedule.
 */
#include "lathe/plugin.h"
#include "lathe/scheduler.h"

static double at(void *self, int64_t step, int64_t total, double base_lr, const double *state)
{
    (void)self, (void)step, (void)total, (void)state;
    return base_lr;
}

static const lathe_scheduler_v1 table = {
    .size = (uint32_t)sizeof table,
    .revision = LATHE_SCHEDULER_REVISION,
    .at = at,
};

const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_SCHEDULER,
    .revision = LATHE_SCHEDULER_REVISION,
    .name = "constant",
    .version = "1.0.0",
    .summary = "the base rate at every step",
    .source = "transformers get_constant_schedule",
    .license = "Apache-2.0",
    .table = &table,
};
